//! Text data: what a folder yields, which sample comes when, and what a wrong path says.

use std::path::Path;

use expect_test::{Expect, expect};
use meshwright_executor::data::Corpus;

/// A folder with the given files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    root
}

/// The text that samples of a whole epoch cover, in the order of the text.
fn covered(corpus: &Corpus, epoch: u64, sequence: usize) -> Vec<Vec<u8>> {
    let windows = (corpus.len() - 1) / sequence;
    let sample = |i: usize| corpus.sample(5, epoch * windows as u64 + i as u64, 0, 1, sequence);
    (0..windows).map(|i| sample(i).0.iter().map(|id| *id as u8).collect()).collect()
}

#[test]
fn a_folder_is_its_text_files_in_the_order_of_their_paths() {
    let root = folder(&[
        ("b.txt", b"bb"),
        ("a/z.rs", b"az"),
        ("a/deep/x.md", b"ax"),
        ("image.png", b"\x89PNG\0\0"),
        (".git/config", b"hidden"),
        ("target/out.txt", b"built"),
        (".note", b"n"),
    ]);
    let corpus = Corpus::open(root.path(), 6).unwrap();
    let (ids, targets) = corpus.sample(0, 0, 0, 1, 6);
    let text = |ids: &[u32]| ids.iter().map(|id| char::from(*id as u8)).collect::<String>();
    assert_eq!((text(&ids), text(&targets), corpus.len()), ("naxazb".into(), "axazbb".into(), 7));
}

#[test]
fn an_epoch_visits_every_window_once_and_the_next_in_another_order() {
    let text: Vec<u8> = (1..=201).collect();
    for (len, sequence) in [(201, 2), (201, 7), (8, 7), (15, 7), (33, 1)] {
        let root = folder(&[("text", &text[..len])]);
        let corpus = Corpus::open(&root.path().join("text"), sequence).unwrap();
        let (first, second) = (covered(&corpus, 0, sequence), covered(&corpus, 1, sequence));
        let sorted = |mut windows: Vec<Vec<u8>>| {
            windows.sort();
            windows
        };
        let windows = (len - 1) / sequence;
        let expected: Vec<_> = text.chunks(sequence).take(windows).map(<[u8]>::to_vec).collect();
        assert_eq!(sorted(first.clone()), expected);
        assert_eq!(sorted(second.clone()), expected);
        assert!(windows < 9 || first != second && first != expected);
    }
}

#[test]
fn a_sample_depends_on_its_place_in_the_global_batch_only() {
    let text: Vec<u8> = (0..1000u32).map(|i| (i % 251) as u8 + 1).collect();
    let root = folder(&[("text", &text)]);
    let corpus = Corpus::open(root.path(), 8).unwrap();
    for index in 0..4 {
        assert_eq!(corpus.sample(1, 2, index, 4, 8), corpus.sample(1, 0, 8 + index, 4, 8));
        let (ids, targets) = corpus.sample(1, 2, index, 4, 8);
        assert_eq!(ids[1..], targets[..7]);
    }
    assert_ne!(corpus.sample(1, 2, 0, 4, 8), corpus.sample(2, 2, 0, 4, 8));
}

fn refusal(path: &Path, sequence: usize, expected: Expect) {
    let told = Corpus::open(path, sequence).unwrap_err().to_string();
    let folder = path.parent().unwrap().to_string_lossy().into_owned();
    expected.assert_eq(&told.replace(&folder, "DIR"));
}

#[test]
fn refusals_name_the_path_and_the_fix() {
    let root = folder(&[("short.txt", b"four"), ("empty.txt", b""), ("none/image", b"\0")]);
    let at = |name: &str| root.path().join(name);
    refusal(
        &at("missing"),
        8,
        expect!["DIR/missing: no such file or folder; give the path of a text file, or of a folder of them"],
    );
    refusal(
        &at("short.txt"),
        4,
        expect![
            "DIR/short.txt: holds 4 bytes of text, a sequence of 4 needs 5; give more text or a shorter sequence"
        ],
    );
    let empty = "holds no text; files with NUL bytes, hidden folders and `target` are passed over";
    for name in ["empty.txt", "none"] {
        let told = Corpus::open(&at(name), 4).unwrap_err().to_string();
        assert_eq!(told, format!("{}: {empty}", at(name).display()));
    }
}
