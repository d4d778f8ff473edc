//! Presets, sizes by nodes, constants, and the host as a cluster.

use expect_test::expect;
use meshwright_ir::{Bytes, Cluster, Flops, HostProfile, ProfileSample};
use meshwright_zoo::{apply_constants, cluster, cluster_presets, constants_from_toml, localhost};
use std::path::Path;

fn preset(name: &str, nodes: Option<u32>) -> Cluster {
    cluster(name, nodes, Path::new("")).unwrap().0
}

/// Paths of every number in a TOML value; list items go by their `name` or `class`.
fn numbers(value: &toml::Value, path: &str, found: &mut Vec<String>) {
    let join = |key: &str| if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
    match value {
        toml::Value::Integer(_) | toml::Value::Float(_) => found.push(path.to_string()),
        toml::Value::Table(table) => table.iter().for_each(|(k, v)| numbers(v, &join(k), found)),
        toml::Value::Array(items) => {
            for item in items {
                let name = ["name", "class"].iter().find_map(|k| item.get(k)?.as_str());
                numbers(item, &name.map_or(path.to_string(), join), found);
            }
        }
        toml::Value::String(_) | toml::Value::Boolean(_) | toml::Value::Datetime(_) => {}
    }
}

#[test]
fn every_number_of_a_preset_names_its_source() {
    for name in cluster_presets() {
        let cluster = preset(name, None);
        assert_eq!(cluster.name, name);
        let mut found = Vec::new();
        numbers(&toml::Value::try_from(&cluster).unwrap(), "", &mut found);
        for path in found.iter().filter(|p| *p != "ranks_per_device") {
            // `device.curves.matmul.points` is covered by `device.curves.matmul`.
            let stem = path.trim_end_matches(".points");
            assert!(cluster.sources.contains_key(stem), "{name}: {path} has no source");
        }
        for key in cluster.sources.keys() {
            assert!(found.iter().any(|p| p.trim_end_matches(".points") == key), "{name}: {key} is no number");
        }
    }
}

#[test]
fn nodes_size_the_outer_level() {
    let cluster = preset("h100-sxm", Some(16));
    assert_eq!((cluster.devices(), cluster.nodes(), cluster.ranks()), (128, 16, 128));
    assert_eq!((cluster.level_between(0, 7), cluster.level_between(7, 8)), (0, 1));
    assert_eq!(preset("a100-sxm-80", None).devices(), 8);
    let hashes: Vec<_> = [1, 2].map(|n| cluster_hash("h100-sxm", n)).into();
    assert_ne!(hashes[0], hashes[1]);
}

fn cluster_hash(name: &str, nodes: u32) -> String {
    cluster(name, Some(nodes), Path::new("")).unwrap().1.hash
}

#[test]
fn constants_override_the_clusters_they_name() {
    let text = r#"
        [h100-sxm.device]
        launch = 7000000
        curves = [{ class = "matmul", points = [[1e9, 0.5]] }]
        [h100-sxm.levels.nvlink]
        efficiency = 0.7
    "#;
    let constants = constants_from_toml("cal.toml", text).unwrap();
    let [h100, a100] = ["h100-sxm", "a100-sxm-80"].map(|n| preset(n, None));
    let new = apply_constants(h100.clone(), "cal.toml", &constants).unwrap();
    assert_eq!((new.device.launch.0, new.levels[0].efficiency), (7_000_000, 0.7));
    assert_eq!((new.device.curves.len(), new.levels[1].efficiency), (4, h100.levels[1].efficiency));
    assert_eq!(apply_constants(a100.clone(), "cal.toml", &constants).unwrap(), a100);
    let wrong = constants_from_toml("cal.toml", "[h100-sxm.levels.ethernet]\nefficiency = 0.5").unwrap();
    expect![
        "cal.toml: h100-sxm.levels.ethernet: no such level; name a level of the cluster: nvlink, infiniband"
    ]
    .assert_eq(&apply_constants(h100, "cal.toml", &wrong).unwrap_err().to_string());
}

fn sample(name: &str, flops: u64, bytes: u64, threads: u32, seconds: f64) -> ProfileSample {
    ProfileSample { name: name.into(), flops: Flops(flops), bytes: Bytes(bytes), threads, seconds }
}

fn host(samples: Vec<ProfileSample>) -> HostProfile {
    HostProfile { processor: "Test CPU".into(), cores: 4, memory: Bytes::gib(16), samples }
}

/// A ring all-reduce of `n` ranks with 5 us per message and 2 GB/s.
fn ring(n: u64, bytes: u64) -> ProfileSample {
    let steps = 2.0 * (n - 1) as f64;
    let seconds = steps * 5e-6 + steps / n as f64 * bytes as f64 / 2e9;
    sample(&format!("all_reduce {n}"), 0, bytes, n as u32, seconds)
}

#[test]
fn a_host_becomes_a_cluster() {
    let profile = host(vec![
        sample("matmul", 1_000_000, 0, 1, 1e-4),
        sample("matmul", 1_000_000_000, 0, 1, 0.02),
        sample("matmul", 1_000_000_000, 0, 4, 0.025),
        sample("copy", 0, 1 << 20, 1, 1e-5),
        sample("copy", 0, 100_000_000, 1, 0.01),
        sample("copy", 0, 100_000_000, 4, 0.02),
        sample("add", 0, 1_000_000, 1, 5e-5),
        sample("norm", 0, 1_000_000, 1, 4e-4),
        sample("norm backward", 0, 1_000_000, 1, 1e-4),
        sample("handoff", 0, 0, 2, 8e-6),
        ring(2, 4096),
        ring(2, 1 << 22),
        ring(4, 4096),
        ring(4, 1 << 22),
    ]);
    let four = localhost(&profile, 4);
    four.check().unwrap();
    expect![[r#"
        name = "localhost"
        devices_per_node = 1
        ranks_per_device = 4

        [device]
        name = "Test CPU"
        kind = "cpu"
        memory = 17179869184
        reserved = 67108864
        memory_bandwidth = 20000000000.0
        core_bandwidth = 10000000000.0
        cores = 4
        launch = 800000

        [device.peak]
        f32 = 50000000000.0

        [[device.curves]]
        class = "matmul"
        points = [[1000000000.0, 0.8]]

        [[device.curves]]
        class = "memory"
        points = [[1000000.0, 2.0]]

        [[device.curves]]
        class = "norm"
        points = [[999999.9999999995, 0.5]]

        [[levels]]
        name = "memory"
        size = 1
        bandwidth = 1999999999.9999998
        latency = 5000000
        efficiency = 1.0

        [sources]
        "device.core_bandwidth" = "measured here: largest copy of one thread"
        "device.launch" = "measured here: a tenth of a thread hand-off"
        "device.memory_bandwidth" = "measured here: largest copy of all threads"
        "device.peak.f32" = "measured here: fastest matmul of one thread"
        "device.reserved" = "a guess: 64 MiB per rank"
        "levels.memory.bandwidth" = "measured here: line through all_reduce samples"
        "levels.memory.latency" = "measured here: line through all_reduce samples"
    "#]]
    .assert_eq(&toml::to_string(&four).unwrap());
    assert_eq!((four.devices(), four.ranks(), four.memory_per_rank()), (1, 4, Bytes((4 << 30) - (64 << 20))));
    // One rank alone sees the unloaded core.
    assert_eq!(localhost(&profile, 1).device.curves[0].points.last().unwrap().1, 1.0);
}

#[test]
fn a_host_without_samples_is_a_guess_that_says_so() {
    let cluster = localhost(&HostProfile { memory: Bytes(0), cores: 0, ..host(vec![]) }, 0);
    cluster.check().unwrap();
    assert_eq!((cluster.ranks(), cluster.device.cores), (1, 1));
    assert!(cluster.sources.values().all(|s| s.starts_with("a guess")), "{:?}", cluster.sources);
}

#[test]
fn unsound_samples_are_passed_over() {
    let bad = [f64::NAN, f64::INFINITY, 0.0, -1.0];
    let samples = bad.iter().flat_map(|s| {
        ["matmul", "copy", "handoff", "norm", "all_reduce 2"].map(|n| sample(n, u64::MAX, u64::MAX, 0, *s))
    });
    let odd = ["all_reduce", "all_reduce 0", "all_reduce x", "all_reduce 1"].map(|n| sample(n, 0, 1, 1, 1.0));
    let huge =
        ["matmul", "copy", "add", "all_reduce 2"].map(|n| sample(n, u64::MAX, u64::MAX, u32::MAX, 1e300));
    localhost(&host(samples.chain(odd).chain(huge).collect()), 4).check().unwrap();
}
