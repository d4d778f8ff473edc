//! Parameter counts against independent ones, to the last digit. The table `data/hf/COUNTS.csv` says what each config of
//! that folder counts and who counted it; `docs/models.md` is written from it and what this crate reads.

use expect_test::{expect, expect_file};
use meshwright_zoo::{families, model, model_from_config};
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

#[test]
fn published_counts_of_presets() {
    // Counted by transformers 5.24 on meta tensors; GPT-3 by its table's widths with GPT-2's vocabulary.
    for (source, params) in [
        ("gpt2-124m", 124_439_808),
        ("llama2-7b.json", 6_738_415_616),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3.1-405b", 405_853_388_800),
        ("qwen2.5-0.5b.json", 494_032_768),
        ("qwen3-0.6b", 596_049_920),
        ("mistral-7b-v0.1.json", 7_241_732_096),
        ("gpt3-175b", 174_604_259_328),
        ("gpt-nano", 3_356_160),
    ] {
        let (model, _) = model(source, &data()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(model.params(), params, "{source}");
    }
}

/// One row of the table.
struct Row {
    file: String,
    total: Option<u64>,
    active: Option<u64>,
    routed: Option<u64>,
    counted_by: String,
}

fn rows() -> Vec<Row> {
    let table = std::fs::read_to_string(data().join("hf/COUNTS.csv")).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |k: usize| cells[k].parse().ok();
        let file = cells[0].to_string();
        Row { file, total: number(1), active: number(2), routed: number(3), counted_by: cells[4].to_string() }
    };
    table.lines().skip(1).map(row).collect()
}

#[test]
fn every_sample_counts_to_the_last_digit() {
    let (mut exact, mut uncounted, mut rest, mut table) = (0, 0, String::new(), String::new());
    for row in rows() {
        let text = std::fs::read_to_string(data().join("hf").join(&row.file)).unwrap();
        let name = row.file.trim_end_matches(".json");
        let read = model_from_config(&row.file, name, &text);
        let (family, total, active, verdict) = match &read {
            Err(e) => (String::new(), String::new(), String::new(), format!("not read: {}", e.found)),
            Ok(model) => {
                assert!(families().any(|f| f == model.family), "{}", model.family);
                let counts = [model.params(), model.active_params(), model.routed_params()];
                let wanted = [row.total, row.active, row.routed];
                let off: Vec<String> = ["total", "active", "routed"]
                    .iter()
                    .zip(counts.iter().zip(&wanted))
                    .filter_map(|(what, (n, want))| {
                        let off = i128::from(*n) - i128::from((*want)?);
                        (off != 0).then(|| format!("{what} differs by {off:+}"))
                    })
                    .collect();
                let verdict = match (row.total, off.is_empty()) {
                    (None, _) => "no other count known".to_string(),
                    (Some(_), true) => "exact".to_string(),
                    (Some(_), false) => off.join(", "),
                };
                (model.family.clone(), digits(counts[0]), digits(counts[1]), verdict)
            }
        };
        match verdict.as_str() {
            "exact" => exact += 1,
            "no other count known" => uncounted += 1,
            other => writeln!(rest, "{name}: {other}").unwrap(),
        }
        writeln!(table, "| {name} | {family} | {total} | {active} | {} | {verdict} |", row.counted_by)
            .unwrap();
    }
    expect![[r#"
        86 exact, 2 without another count
        deepseek_v4-flash: not read: `deepseek_v4`, which is not built yet
        deepseek_vl2-tiny: not read: `deepseek_vl_v2`, which is not built yet
        gemma4-26b-a4b: not read: `gemma4`, which is not built yet
        mllama-11b: not read: `mllama`, which is not built yet
        qwen3_5_moe-35b-a3b: not read: `qwen3_5_moe`, which is not built yet
    "#]]
    .assert_eq(&format!("{exact} exact, {uncounted} without another count\n{rest}"));
    let known: Vec<String> = families().map(|f| format!("`{f}`")).collect();
    let doc = format!(
        "{HEAD}\n{} families are read, by `model_type`: {}.\n\n| config | family | parameters | active | counted by | here |\n|---|---|---|---|---|---|\n{table}",
        known.len(),
        known.join(", ")
    );
    expect_file!["../../../docs/models.md"].assert_eq(&doc);
}

/// A sample with one piece of its text replaced.
fn edited(file: &str, from: &str, to: &str) -> meshwright_ir::Model {
    let text = std::fs::read_to_string(data().join("hf").join(file)).unwrap();
    assert!(text.contains(from), "{from} in {file}");
    model_from_config(file, "m", &text.replacen(from, to, 1)).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn null_and_absent_differ() {
    // Case B2: DeepSeek-V2-Lite without its `q_lora_rank` has that of its class, 1536.
    let absent = edited("deepseek_v2-lite-16b.json", "\"q_lora_rank\": null", "\"_none\": null");
    assert_eq!(absent.params(), 15_748_993_024);
}

#[test]
fn windowed_layers_attend_to_their_windows() {
    // Cases D1 and D8: torchtitan's count of gpt-oss-120b at 4096 tokens, windows of 128 in half of its layers.
    let text = std::fs::read_to_string(data().join("hf/gpt_oss-120b.json")).unwrap();
    let model = model_from_config("gpt_oss-120b.json", "m", &text).unwrap();
    let counts = meshwright_algebra::per_token(&model, 4096);
    assert_eq!(counts.conventions[1].training, 34_534_221_696);
    // D6: of the experts, those a token visits. D3: masked attention is about half of dense.
    assert_eq!(model.active_params(), 5_711_982_912);
    assert_eq!(counts.kv_width, 36 * 2 * 8 * 64);
}

#[test]
fn an_unknown_name_is_read_where_its_keys_prove_it() {
    let renamed = edited("llama3-8b.json", "\"model_type\": \"llama\"", "\"model_type\": \"lima\"");
    assert_eq!((renamed.params(), renamed.family.as_str()), (8_030_261_248, "llama"));
    assert!(renamed.assumed.iter().any(|a| a.contains("`lima` is read as llama")), "{:?}", renamed.assumed);
    let text = std::fs::read_to_string(data().join("hf/llama3-8b.json")).unwrap();
    let foreign = text
        .replace("\"model_type\": \"llama\"", "\"model_type\": \"lima\", \"use_memory\": true")
        .replace("LlamaForCausalLM", "LimaForCausalLM");
    let error = model_from_config("config.json", "m", &foreign).unwrap_err();
    assert_eq!(
        (error.field.as_str(), error.found.as_str()),
        ("model_type", "`lima`, which is not built yet")
    );
}

#[test]
fn every_sample_has_counts_per_token() {
    // That there are counts, and that backward costs at least what forward does; exact figures are tested one by one.
    for row in rows() {
        let text = std::fs::read_to_string(data().join("hf").join(&row.file)).unwrap();
        let Ok(model) = model_from_config(&row.file, "m", &text) else { continue };
        let counts = meshwright_algebra::per_token(&model, 64);
        assert!(counts.activation_bytes > 0 && counts.conventions.len() == 4, "{}", row.file);
        let matrices = counts.conventions[0].forward;
        assert!(
            matrices > 0 && counts.conventions.iter().all(|c| c.training >= 2 * c.forward),
            "{}",
            row.file
        );
    }
}

const HEAD: &str = "# Models

What `meshwright model` reads, and how its counts compare with others'. A test of the `zoo` crate writes this page from the
configs in `zoo/tests/data/hf` (`UPDATE_EXPECT=1 cargo test -p meshwright-zoo --release`), so it cannot be out of date.

Counts are of parameters that are trained, each once: a tied head is no second table. What some published figures add or
leave out, on purpose otherwise here:

- The router's correction biases of DeepSeek-V3 and its kin are buffers that no gradient reaches; they are not counted
  (14,848 of them in DeepSeek-V3, whose figure is often given with them).
- Layers that predict further tokens (`num_nextn_predict_layers`) are not part of the main model and not counted.
- BERT is counted with the head that `architectures` names: with the masked-language head or the pooler, never both.
- Where a config leaves out a key, transformers' class default decides, as it does when the config is loaded there.
";

/// `70,553,706,496`.
fn digits(n: u64) -> String {
    let text = n.to_string();
    let parts: Vec<&str> = text.as_bytes().rchunks(3).map(|c| std::str::from_utf8(c).unwrap()).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join(",")
}
