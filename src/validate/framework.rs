//! What each training framework does by itself: its habits in issuing a program, and the settings that a table of runs
//! need not repeat. A framework that is not listed is taken to be an eager one that overlaps what it can, and the row says
//! so in what it assumes.

use super::issue::Manner;

/// One framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framework {
    /// The start of what a table calls it, in lower case; the longest that fits counts.
    prefix: &'static str,
    /// How it issues ops.
    pub manner: Manner,
    /// The vocabulary is padded to a multiple of this times the tensor-parallel degree.
    pub vocabulary_multiple: u64,
}

const COMPILED: Manner = Manner {
    eager: false,
    blocking_messages: false,
    blocking_collectives: false,
    late_gradients: false,
    narrow_gradients: false,
};
const OVERLAPPING: Manner = Manner { eager: true, ..COMPILED };
const SYNCHRONOUS: Manner =
    Manner { blocking_messages: true, blocking_collectives: true, late_gradients: true, ..OVERLAPPING };

/// Megatron-LM of 2020 to 2022 waits for each message between stages (`p2p_communication.py` synchronises the device after
/// it) and sums gradients after the backward pass (`DistributedDataParallel.allreduce_gradients`); its vocabulary is padded
/// to 128 times tp (`make_vocab_size_divisible_by`). In fp16 all of these sum gradients in fp16, in bf16 in fp32. Megatron-Core overlaps both by default in NeMo's recipes. PyTorch's DDP
/// sums buckets beside backward. JAX, Alpa and nnScaler launch compiled graphs.
const FRAMEWORKS: [Framework; 11] = [
    Framework { prefix: "megatron-deepspeed", manner: SYNCHRONOUS, vocabulary_multiple: 128 },
    Framework { prefix: "megatron-lm", manner: SYNCHRONOUS, vocabulary_multiple: 128 },
    Framework { prefix: "modellink", manner: SYNCHRONOUS, vocabulary_multiple: 128 },
    Framework { prefix: "megatron-core", manner: OVERLAPPING, vocabulary_multiple: 128 },
    Framework { prefix: "nemo", manner: OVERLAPPING, vocabulary_multiple: 128 },
    Framework { prefix: "megatron-lm 0.14", manner: OVERLAPPING, vocabulary_multiple: 128 },
    Framework { prefix: "pytorch ddp", manner: OVERLAPPING, vocabulary_multiple: 1 },
    Framework { prefix: "hf trainer", manner: OVERLAPPING, vocabulary_multiple: 1 },
    Framework { prefix: "alpa", manner: COMPILED, vocabulary_multiple: 1 },
    Framework { prefix: "maxtext", manner: COMPILED, vocabulary_multiple: 1 },
    Framework { prefix: "nnscaler", manner: COMPILED, vocabulary_multiple: 1 },
];

/// The framework that a table calls `name`, and whether it is a known one.
pub(super) fn framework(name: &str) -> (Framework, bool) {
    let name = name.trim().to_lowercase();
    let fitting = FRAMEWORKS.iter().filter(|f| name.starts_with(f.prefix));
    match fitting.max_by_key(|f| f.prefix.len()) {
        Some(known) => (*known, true),
        None => (Framework { prefix: "", manner: OVERLAPPING, vocabulary_multiple: 1 }, false),
    }
}

/// A framework's name as part of a cluster's: lower case, without version or remark.
pub(super) fn slug(name: &str) -> String {
    let word = name.split(['(', '+', ' ']).next().unwrap_or_default();
    let plain =
        |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c.to_ascii_lowercase() } else { '-' };
    let slug: String = word.chars().map(plain).take(40).collect();
    let slug = slug.trim_matches('-');
    if slug.is_empty() { "any".into() } else { slug.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_known_name_counts() {
        assert_eq!(framework("Megatron-LM 2021").0.manner, SYNCHRONOUS);
        assert_eq!(framework("Megatron-LM 0.14 + TransformerEngine").0.manner, OVERLAPPING);
        assert!(!framework("homegrown").1);
        assert_eq!(slug("NeMo/Megatron-Core (MLPerf)"), "nemo-megatron-core");
    }
}
