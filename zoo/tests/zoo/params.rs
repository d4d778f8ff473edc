//! Parameter counts against published ones: those committed here, and every sample of the shared library if it is there.

use meshwright_zoo::{families, model, model_from_config};
use std::path::{Path, PathBuf};

/// A config of `tests/data`, or a preset.
fn count(source: &str) -> u64 {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    model(source, &data).unwrap_or_else(|e| panic!("{e}")).0.params()
}

#[test]
fn published_counts() {
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
        assert_eq!(count(source), params, "{source}");
    }
}

#[test]
fn every_sample_counts_to_the_last_digit() {
    // Beside the repository's root, or beside the checkout that holds it.
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Some(hf) =
        ["shared", "../shared"].iter().map(|s| root.join(s).join("samples/hf")).find(|p| p.is_dir())
    else {
        return;
    };
    let table = std::fs::read_to_string(hf.join("PARAMS.csv")).unwrap();
    let mut counted = 0;
    for row in table.lines().skip(1) {
        let mut cells = row.split(',');
        let (file, Ok(params)) = (cells.next().unwrap(), cells.next().unwrap_or("").parse::<u64>()) else {
            continue;
        };
        let text = std::fs::read_to_string(hf.join(file)).unwrap();
        match model_from_config(file, file, &text) {
            Ok(model) => {
                assert_eq!(model.params(), params, "{file}");
                assert!(families().any(|f| f == model.family));
                counted += 1;
            }
            Err(e) => {
                assert_eq!((e.field.as_str(), e.found.contains("not built yet")), ("model_type", true), "{e}")
            }
        }
    }
    assert!(counted >= 25, "only {counted} samples of known families");
}
