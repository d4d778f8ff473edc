//! The command line from outside: the binary itself, on a machine whose profile is a fixture, so that nothing is measured
//! and every machine gives the same answer. What the contract promises is a table here, and so is what it refuses.

mod bad_input;
mod closed;
mod contract;
mod no_fit;
mod odd_shapes;
mod transcripts;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Longest message that exit code 2 may come with.
const LONGEST_MESSAGE: usize = 2048;

/// A command in a folder of its own, with the repository as `repository/` and a cache that knows this machine.
pub(crate) struct Workplace {
    folder: TempDir,
}

/// What a command did.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Workplace {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(env!("CARGO_MANIFEST_DIR"), folder.path().join("repository")).unwrap();
        std::fs::copy(fixture("pair.toml"), folder.path().join("pair.toml")).unwrap();
        Self { folder }
    }
    /// A path inside.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    /// Writes a file.
    pub(crate) fn give(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path(name), content).unwrap();
        self
    }
    /// Names of what lies inside.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
    /// The command, not yet started. Arguments are words, separated by white space.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        command.args(arguments.split_whitespace()).current_dir(self.folder.path());
        command.env("XDG_CACHE_HOME", cache()).env("NO_COLOR", "1").env_remove("RUST_BACKTRACE");
        command.stdin(Stdio::null());
        command
    }
    /// Runs the command; a panic fails the test, whatever it was given.
    pub(crate) fn run(&self, arguments: &str) -> Ran {
        finished(arguments, &self.command(arguments).output().unwrap())
    }
    /// Runs the command, which must end with 0.
    pub(crate) fn ok(&self, arguments: &str) -> Ran {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "meshwright {arguments}: {}", ran.err);
        ran
    }
    /// The one JSON object of a command that must end with `code`.
    pub(crate) fn json(&self, arguments: &str, code: i32) -> Value {
        let ran = self.run(&format!("{arguments} --json -q"));
        assert_eq!(ran.code, code, "meshwright {arguments}: {}", ran.err);
        assert_eq!(ran.err, "", "meshwright {arguments} is not quiet");
        let value: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{arguments}: {e}"));
        assert!(value.is_object(), "meshwright {arguments} prints no object");
        value
    }
}

/// What a finished command did, held to what holds of every command.
pub(crate) fn finished(what: &str, output: &Output) -> Ran {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ran = Ran {
        code: output.status.code().unwrap_or(-1),
        out: text(&output.stdout),
        err: text(&output.stderr),
    };
    assert!([0, 1, 2].contains(&ran.code), "meshwright {what} ends with {}: {}", ran.code, ran.err);
    if ran.code == 2 {
        assert_eq!(ran.out, "", "meshwright {what} prints before it refuses");
        assert!(
            !ran.err.is_empty() && output.stderr.len() <= LONGEST_MESSAGE,
            "meshwright {what} refuses in {} bytes",
            output.stderr.len()
        );
    }
    ran
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cli").join(name)
}

/// A cache folder that holds the fixture's profile, for as many cores as this machine has.
fn cache() -> &'static Path {
    static CACHE: OnceLock<TempDir> = OnceLock::new();
    CACHE
        .get_or_init(|| {
            let cores = std::thread::available_parallelism().unwrap();
            let profile = std::fs::read_to_string(fixture("localhost.toml")).unwrap();
            let profile = profile.replace("cores = 2", &format!("cores = {cores}"));
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("meshwright")).unwrap();
            std::fs::write(folder.path().join("meshwright/localhost.toml"), profile).unwrap();
            folder
        })
        .path()
}

/// A plan that takes no time: gpt-nano on the fixture's cluster.
pub(crate) const PLAN: &str =
    "plan --model gpt-nano --cluster pair.toml --sequence 32 --global-batch 8 --precision fp32";
