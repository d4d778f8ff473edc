//! Jobs of the examples, resolved as the command line resolves them.

use meshwright_ir::{HostProfile, Job, JobFile, JobSearch, Plan};
use std::path::{Path, PathBuf};

/// A file of the repository.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The quick start on `ranks` ranks of a machine with this profile, with some choices pinned.
pub(crate) fn quickstart(profile: HostProfile, ranks: u32, pin: &str) -> Job {
    let search = JobSearch { ranks: Some(ranks), pin: Some(pin.into()), ..JobSearch::default() };
    resolve("quickstart.toml", JobFile { search, ..JobFile::default() }, Some(profile))
}

/// Llama-3-70B on 64 nodes of eight H100.
pub(crate) fn llama3_70b() -> Job {
    resolve("llama3-70b-512-h100.toml", JobFile::default(), None)
}

fn resolve(name: &str, over: JobFile, profile: Option<HostProfile>) -> Job {
    let folder = file("examples");
    let job = meshwright_zoo::job_file(&folder.join(name), name).expect("an example");
    let host = |_: Option<u32>| Ok(profile.expect("only the quick start is for this machine"));
    meshwright_zoo::resolve(meshwright_zoo::merge(job, over), &folder, host).expect("an example resolves")
}

/// The best plan of a job that is known to have one.
pub(crate) fn plan(job: &Job) -> Plan {
    match meshwright::plan(job, &|_| ()).expect("a plan lowers") {
        meshwright::Planned::Fits(plan) => *plan,
        meshwright::Planned::NoFit { why, .. } => panic!("no plan fits: {why:?}"),
    }
}

/// The data that the quick start trains on: the source of the executor.
pub(crate) fn corpus() -> PathBuf {
    file("executor")
}
