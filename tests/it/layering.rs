//! The layering of the workspace, read from its manifests and sources: who may depend on whom, what a file may hold. What
//! is asserted here is what the architecture promises by absence.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Each crate's folder and the other crates of the workspace that it names.
const CRATES: [(&str, &[&str]); 11] = [
    ("ir", &[]),
    ("algebra", &["ir"]),
    ("zoo", &["ir", "algebra"]),
    ("engines", &["ir"]),
    ("cost-models", &["ir", "algebra"]),
    ("lowering", &["ir", "algebra"]),
    ("simulator", &["ir", "algebra", "cost-models"]),
    ("planner", &["ir", "algebra", "cost-models"]),
    ("executor", &["ir", "algebra"]),
    ("executor/cuda", &["executor"]),
    ("reports", &["ir"]),
];

/// Crates that must not be reached, by whatever way.
const ABSENCES: [(&str, &[&str]); 4] = [
    ("executor", &["cost-models", "simulator", "planner", "lowering"]),
    ("executor/cuda", &["cost-models", "simulator", "planner", "lowering"]),
    ("planner", &["lowering", "simulator", "executor"]),
    ("reports", &["cost-models", "planner", "simulator", "executor"]),
];

/// What else lies at the top beside the crates.
const OTHER_FOLDERS: [&str; 6] = ["src", "tests", "docs", "examples", "benches", "scripts"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn manifest(folder: &str) -> Table {
    let path = root().join(folder).join("Cargo.toml");
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).parse().unwrap()
}

/// Names under every `[dependencies]` of a manifest, those of targets and optional ones included.
fn dependencies(manifest: &Table) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(|t| t.values()).filter_map(Value::as_table).chain([manifest]);
    let names = |t: &Table| {
        t.get("dependencies").and_then(Value::as_table).map(|d| d.keys().cloned().collect::<Vec<_>>())
    };
    tables.filter_map(names).flatten().collect()
}

/// The folder of a package of the workspace.
fn folder(package: &str) -> Option<&'static str> {
    let named = |folder: &str| format!("meshwright-{}", folder.replace('/', "-")) == package;
    CRATES.iter().map(|(folder, _)| *folder).find(|f| named(f))
}

/// Crates of the workspace and packages from elsewhere that each crate names.
fn graph() -> BTreeMap<&'static str, (BTreeSet<&'static str>, BTreeSet<String>)> {
    let split = |crate_folder: &'static str| {
        let (own, foreign): (Vec<_>, Vec<_>) =
            dependencies(&manifest(crate_folder)).into_iter().partition(|d| d.starts_with("meshwright"));
        let own = own.iter().map(|d| folder(d).unwrap_or_else(|| panic!("{crate_folder} depends on {d}")));
        (crate_folder, (own.collect(), foreign.into_iter().collect()))
    };
    CRATES.iter().map(|(folder, _)| split(folder)).collect()
}

#[test]
fn crates_depend_on_what_the_architecture_lists() {
    let graph = graph();
    for (name, allowed) in CRATES {
        let strays: Vec<_> = graph[name].0.iter().filter(|d| !allowed.contains(d)).collect();
        assert!(strays.is_empty(), "{name} depends on {strays:?}");
    }
    for (name, absent) in ABSENCES {
        let mut reached = BTreeSet::from([name]);
        let mut open = vec![name];
        while let Some(at) = open.pop() {
            open.extend(graph[at].0.iter().filter(|d| reached.insert(d)));
        }
        let strays: Vec<_> = reached.iter().filter(|d| absent.contains(d)).collect();
        assert!(strays.is_empty(), "{name} reaches {strays:?}");
    }
    let foreign = |name: &str| graph[name].1.iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(foreign("ir"), ["petgraph", "serde", "thiserror"]);
    assert!(foreign("algebra").is_empty(), "algebra has no devices, no time and no packages of others");
}

#[test]
fn every_crate_is_one_folder_at_the_top() {
    let workspace = manifest("")["workspace"].clone();
    let members: BTreeSet<&str> =
        workspace["members"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(members, CRATES.iter().map(|(folder, _)| *folder).collect());
    let known = |name: &str| {
        CRATES.iter().any(|(folder, _)| *folder == name)
            || OTHER_FOLDERS.contains(&name)
            || ["target", "shared", "scripts"].contains(&name)
            || name.starts_with('.')
    };
    for entry in fs::read_dir(root()).unwrap().map(Result::unwrap).filter(|e| e.path().is_dir()) {
        let name = entry.file_name().into_string().unwrap();
        assert!(known(&name), "the folder {name} is no crate of the architecture");
    }
    for (folder, _) in CRATES {
        let name = format!("meshwright-{}", folder.replace('/', "-"));
        assert_eq!(manifest(folder)["package"]["name"].as_str(), Some(name.as_str()));
    }
}

#[test]
fn unsafe_code_is_forbidden_outside_the_executor() {
    assert_eq!(manifest("")["workspace"]["lints"]["rust"]["unsafe_code"].as_str(), Some("forbid"));
    for (folder, _) in CRATES.iter().chain([&("", &[][..])]) {
        let lints = &manifest(folder)["lints"];
        let inherits = lints.get("workspace").and_then(Value::as_bool) == Some(true);
        assert_eq!(inherits, *folder != "executor", "lints of `{folder}`");
    }
    assert_eq!(manifest("executor")["lints"]["rust"]["unsafe_code"].as_str(), Some("deny"));
}

/// Every source file of the workspace.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        let skipped = name.to_str().is_none_or(|n| n.starts_with('.') || ["target", "shared"].contains(&n));
        match path.is_dir() {
            true if !skipped => sources(&path, found),
            false if path.extension().is_some_and(|e| e == "rs") => found.push(path),
            _ => {}
        }
    }
}

#[test]
fn files_are_short_finished_and_say_what_they_hold() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    assert!(files.len() > 100, "only {} files were found", files.len());
    // Spelt in two parts, or this file would be at fault itself.
    let unfinished = ["todo", "unimplemented"].map(|word| format!("{word}!("));
    let fault = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().count();
        let unfinished = unfinished.iter().find(|word| text.contains(word.as_str()));
        let name = path.strip_prefix(root()).unwrap().display();
        match (lines, unfinished, text.starts_with("//!")) {
            (601.., _, _) => Some(format!("{name} has {lines} lines, of 600 at most")),
            (_, Some(word), _) => Some(format!("{name} is unfinished: {word}…)")),
            (_, _, false) => Some(format!("{name} does not open by saying what it holds")),
            (_, None, true) => None,
        }
    };
    let faults: Vec<_> = files.iter().filter_map(fault).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
