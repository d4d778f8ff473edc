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
        59 exact, 1 without another count
        bert-base-uncased: not read: `bert`, which is not built yet
        bert-bge-large: not read: `bert`, which is not built yet
        dbrx-132b: not read: `dbrx`, which is not built yet
        deepseek_v2-lite-16b: not read: `deepseek_v2`, which is not built yet
        deepseek_v3-671b: not read: `deepseek_v3`, which is not built yet
        deepseek_v32-671b: not read: `deepseek_v32`, which is not built yet
        deepseek_v4-flash: not read: `deepseek_v4`, which is not built yet
        deepseek_vl2-tiny: not read: `deepseek_vl_v2`, which is not built yet
        gemma3-27b: not read: `gemma3`, which is not built yet
        gemma4-26b-a4b: not read: `gemma4`, which is not built yet
        glm_moe_dsa-5: not read: `glm_moe_dsa`, which is not built yet
        gpt_oss-120b: not read: `gpt_oss`, which is not built yet
        gpt_oss-20b: not read: `gpt_oss`, which is not built yet
        jamba-v0.1-52b: not read: `jamba`, which is not built yet
        kimi_k2-1t: not read: `kimi_k2`, which is not built yet
        llama4-scout-17b-16e: not read: `llama4`, which is not built yet
        llava-1.5-7b-hf: not read: `llava`, which is not built yet
        mamba-130m: not read: `mamba`, which is not built yet
        mamba2-default: not read: `mamba2`, which is not built yet
        minicpm3-4b: not read: `minicpm3`, which is not built yet
        minimax_m2.5: not read: `minimax_m2`, which is not built yet
        mixtral-8x7b: not read: `mixtral`, which is not built yet
        mllama-11b: not read: `mllama`, which is not built yet
        phimoe-42b: not read: `phimoe`, which is not built yet
        qwen2_vl-2b: not read: `qwen2_vl`, which is not built yet
        qwen3_5_moe-35b-a3b: not read: `qwen3_5_moe`, which is not built yet
        qwen3_moe-235b-a22b: not read: `qwen3_moe`, which is not built yet
        qwen3_moe-480b-a35b: not read: `qwen3_moe`, which is not built yet
        shrunk-t5-v1_1: not read: `t5`, which is not built yet
        shrunk-t5: not read: `t5`, which is not built yet
        t5-small: not read: `t5`, which is not built yet
        vit-base-patch16-224: not read: `vit`, which is not built yet
        whisper-tiny: not read: `whisper`, which is not built yet
    "#]].assert_eq(&format!("{exact} exact, {uncounted} without another count\n{rest}"));
    let known: Vec<String> = families().map(|f| format!("`{f}`")).collect();
    let doc = format!(
        "{HEAD}\n{} families are read, by `model_type`: {}.\n\n| config | family | parameters | active | counted by | here |\n|---|---|---|---|---|---|\n{table}",
        known.len(),
        known.join(", ")
    );
    expect_file!["../../../docs/models.md"].assert_eq(&doc);
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
