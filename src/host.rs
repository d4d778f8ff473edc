//! This machine, measured once: `localhost` is a few seconds of kernels and thread communication, kept in a TOML file in
//! the user's cache folder and named by hash in every job that uses it.

use crate::files;
use meshwright_executor::microbench::{self, Pass};
use meshwright_ir::{Bytes, Flops, HostProfile, ProfileSample};
use std::path::PathBuf;

/// The cached profile, or a fresh one that is then cached. `fresh` measures again. `say` is told before measuring.
pub fn profile(fresh: bool, say: &dyn Fn(&str)) -> HostProfile {
    let cache = cache_file();
    if let Some(path) = cache.as_ref().filter(|p| !fresh && p.exists()) {
        match meshwright_zoo::host_profile(path) {
            Ok(known) if known.cores == cores() => return known,
            // Another machine's, or another version's: measure this one.
            Ok(_) | Err(_) => say("the cached profile of this machine does not fit; measuring again"),
        }
    }
    say("measuring this machine (once, a few seconds)");
    let measured = measure();
    let kept = cache.is_some_and(|path| {
        let folder = path.parent().is_some_and(|f| std::fs::create_dir_all(f).is_ok());
        folder && toml::to_string(&measured).is_ok_and(|text| files::write(&path, &text).is_ok())
    });
    if !kept {
        say("the profile could not be cached and will be measured again next time");
    }
    measured
}

/// Where the profile is kept, if the user has a cache folder.
pub fn cache_file() -> Option<PathBuf> {
    let set = |key: &str| std::env::var_os(key).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|h| h.join(".cache")))?;
    Some(folder.join("meshwright").join("localhost.toml"))
}

fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

fn measure() -> HostProfile {
    let samples = microbench::measure().iter().map(sample).collect();
    HostProfile { processor: processor(), cores: cores(), memory: memory(), samples }
}

fn sample(s: &microbench::Sample) -> ProfileSample {
    let backward = matches!(s.pass, Pass::BackwardInput | Pass::BackwardWeight | Pass::Backward);
    let name = match s.name {
        "linear" => "matmul",
        "layer_norm" | "rms_norm" => "norm",
        "gelu" | "relu" => "activation",
        "silu_gate" => "gate",
        "cross_entropy" => "cross-entropy",
        "hand_off" => "handoff",
        other => other,
    };
    let name = match (name, backward) {
        // Passes of a matrix product, of a sum and of a bias are the same work.
        ("matmul" | "add" | "bias" | "cross-entropy", _) | (_, false) => name.to_string(),
        (name, true) => format!("{name} backward"),
    };
    let name = if s.name == "all_reduce" { format!("all_reduce {}", s.threads) } else { name };
    let (flops, bytes) = (Flops(s.flops as u64), Bytes(s.bytes as u64));
    ProfileSample { name, flops, bytes, threads: s.threads as u32, seconds: s.seconds }
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|l| l.strip_prefix("model name")).and_then(|l| l.split_once(": "));
    name.map_or("host processor".to_string(), |(_, n)| n.trim().to_string())
}

fn memory() -> Bytes {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        info.lines().find_map(|l| l.strip_prefix("MemTotal:")).and_then(|l| l.trim().strip_suffix("kB"));
    // Without a number from the system, 4 GiB: a guess on the small side.
    kib.and_then(|k| k.trim().parse().ok()).map_or(Bytes::gib(4), |k: u64| Bytes(k << 10))
}
