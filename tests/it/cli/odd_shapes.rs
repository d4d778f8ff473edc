//! Odd numbers of ranks, heads, layers and samples: planned, lowered, simulated and trained.

use super::Workplace;

/// Six heads, five layers, and nothing a power of two but the vocabulary.
const SIX_HEADS: &str = r#"{"model_type":"llama","vocab_size":256,"max_position_embeddings":96,"hidden_size":96,
    "num_hidden_layers":5,"num_attention_heads":6,"num_key_value_heads":6,"intermediate_size":144,"rms_norm_eps":1e-6,
    "rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":false}"#;

/// Parameters of a few bytes, of which pieces for sixteen replicas hold more than the whole.
const TINY: &str = r#"{"model_type":"gpt2","vocab_size":257,"n_positions":64,"n_embd":12,"n_layer":1,"n_head":2,
    "activation_function":"gelu_new","layer_norm_epsilon":1e-5}"#;

#[test]
fn odd_shapes_go_all_the_way() {
    let cases = [
        "gpt-nano 1 1 -",
        "gpt-nano 3 9 -",
        "gpt-nano 5 5 -",
        "gpt-nano 6 1 -",
        "gpt-nano 4 6 pp=4",
        "gpt-nano 4 8 pp=2,microbatch=2,schedule=gpipe",
        "six.json 3 1 tp=3",
        "six.json 3 4 tp=3,sp=true",
        "six.json 6 12 tp=3,pp=2",
        "six.json 7 7 pp=7",
        "six.json 7 14 dp=7",
        "six.json 2 12 dp=2,microbatch=3",
    ];
    let w = Workplace::new();
    w.give("six.json", SIX_HEADS);
    for case in cases {
        let [model, ranks, batch, pin] = case.split(' ').collect::<Vec<_>>()[..] else { unreachable!() };
        let pin = if pin == "-" { String::new() } else { format!("--pin {pin}") };
        let job = format!(
            "--model {model} --cluster localhost --ranks {ranks} --sequence 24 --global-batch {batch} {pin}"
        );
        let plan = w.json(&format!("plan {job} -o plan.json"), 0);
        w.json("lower plan.json -o step.program", 0);
        let simulated = w.json("simulate step.program --cluster localhost", 0);
        assert_eq!(simulated["step_time_s"], plan["step_time_s"], "{case}");
        let ran = w.json("run plan.json --data repository/README.md --steps 2", 0);
        let losses: Vec<f64> =
            ran["losses"].as_array().unwrap().iter().map(|l| l.as_f64().unwrap()).collect();
        // A model that knows nothing of 256 bytes: ln 256 is 5.5.
        assert!(losses.len() == 2 && losses.iter().all(|l| (4.0..7.0).contains(l)), "{case}: {losses:?}");
    }
}

#[test]
fn nodes_need_not_be_a_power_of_two_nor_models_large() {
    let w = Workplace::new();
    w.give("six.json", SIX_HEADS).give("tiny.json", TINY);
    for (model, nodes) in [("six", 1), ("six", 3), ("tiny", 1), ("tiny", 2)] {
        let job = format!(
            "--model {model}.json --cluster h100-sxm --nodes {nodes} --sequence 48 --global-batch 48 --precision bf16"
        );
        let plan = w.json(&format!("plan {job} -o plan.json"), 0);
        let simulated = w.json("simulate plan.json --unfold", 0);
        assert_eq!(simulated["step_time_s"], plan["step_time_s"]);
    }
}
