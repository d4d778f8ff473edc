//! The table of families: each `model_type` and the function that reads its keys.

use super::decoder::Decoder;
use super::keys::Keys;
use super::{alibi, gemma, gpt2, gptj, kin, llama, opt, remote};
use crate::ZooError;

/// Reads the keys of one family.
pub(crate) type Family = fn(&Keys<'_>) -> Result<Decoder, ZooError>;

/// `model_type` and its reader, in order of the alphabet.
pub(crate) const FAMILIES: &[(&str, Family)] = &[
    ("baichuan", remote::baichuan),
    ("bloom", alibi::bloom),
    ("chatglm", remote::chatglm),
    ("cohere", kin::cohere),
    ("cohere2", kin::cohere2),
    ("exaone", llama::exaone),
    ("exaone4", kin::exaone4),
    ("falcon", alibi::falcon),
    ("gemma", gemma::gemma),
    ("gemma2", gemma::gemma2),
    ("gemma3_text", gemma::gemma3_text),
    ("glm", llama::glm),
    ("glm4", kin::glm4),
    ("gpt2", gpt2::gpt2),
    ("gpt_bigcode", gpt2::gpt_bigcode),
    ("gpt_neox", gptj::gpt_neox),
    ("gptj", gptj::gptj),
    ("granite", kin::granite),
    ("helium", llama::helium),
    ("internlm", remote::internlm),
    ("internlm2", remote::internlm2),
    ("llama", llama::llama),
    ("mistral", llama::mistral),
    ("mpt", alibi::mpt),
    ("nemotron", kin::nemotron),
    ("nemotron-nas", remote::decilm),
    ("olmo", kin::olmo),
    ("olmo2", kin::olmo2),
    ("olmo3", kin::olmo3),
    ("opt", opt::opt),
    ("persimmon", gptj::persimmon),
    ("phi", gptj::phi),
    ("phi3", llama::phi3),
    ("phi3small", remote::phi3small),
    ("qwen", remote::qwen),
    ("qwen2", llama::qwen2),
    ("qwen3", llama::qwen3),
    ("smollm3", kin::smollm3),
    ("stablelm", kin::stablelm),
    ("starcoder2", kin::starcoder2),
    ("xverse", remote::xverse),
];
