//! Numbers as a person reads them. A number and its unit are joined by a no-break space; minus is the real sign; what is
//! not finite reads "unknown", never `NaN`.

use meshwright_ir::{Axis, Bytes, Mesh, Schedule, Time};

/// U+00A0: keeps a number and its unit on one line.
pub(crate) const NBSP: char = '\u{a0}';

/// `3.10 GiB`.
pub(crate) fn bytes(b: Bytes) -> String {
    joined(&b.to_string())
}

/// `182 ms`; nothing is plain `0`.
pub(crate) fn time(t: Time) -> String {
    if t == Time::ZERO { "0".into() } else { joined(&t.to_string()) }
}

/// Seconds as `182 ms`; what is no duration reads `unknown`.
pub(crate) fn seconds(s: f64) -> String {
    // 1e6 s of one step is far beyond what `Time` should be asked to hold.
    if s.is_finite() && (0.0..1e6).contains(&s) { time(Time::from_seconds(s)) } else { "unknown".into() }
}

/// Two times in the unit of the second: `150–220 ms`.
pub(crate) fn seconds_range(low: f64, high: f64) -> String {
    let (low, high) = (seconds(low), seconds(high));
    match (low.split_once(NBSP), high.split_once(NBSP)) {
        (Some((a, unit)), Some((b, other))) if unit == other => format!("{a}–{b}{NBSP}{unit}"),
        _ => format!("{low}–{high}"),
    }
}

/// `41.2 %` of a share between 0 and 1.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if !p.is_finite() => "unknown".into(),
        p if p != 0.0 && p.abs() < 0.1 => format!("<{NBSP}0.1{NBSP}%"),
        p => format!("{p:.1}{NBSP}%"),
    }
}

/// `+4 %` or `−4 %`; one decimal below ten.
pub(crate) fn signed_percent(share: f64) -> String {
    let p = share * 100.0;
    let sign = if p < 0.0 { "−" } else { "+" };
    match p.abs() {
        a if !a.is_finite() => "unknown".into(),
        a if a < 10.0 => format!("{sign}{a:.1}{NBSP}%"),
        a => format!("{sign}{a:.0}{NBSP}%"),
    }
}

/// `+12.3 ms` or `−4.00 µs`.
pub(crate) fn signed_seconds(s: f64) -> String {
    let sign = if s < 0.0 { "−" } else { "+" };
    match seconds(s.abs()) {
        text if text == "0" || text == "unknown" => text,
        text => format!("{sign}{text}"),
    }
}

/// Part of a whole as a percentage; empty when there is no whole.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { percent(part as f64 / whole as f64) }
}

/// `1 234 567`, in groups of three.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|g| std::str::from_utf8(g).expect("digits are ASCII"))
        .collect();
    groups.join("\u{202f}")
}

/// `1 rank`, `4 ranks`, `8 micro-batches`.
pub(crate) fn counted(n: u64, noun: &str) -> String {
    let plural = match noun.ends_with("ch") {
        _ if n == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{}{NBSP}{noun}{plural}", count(n))
}

/// A rate per second with a prefix: `12.3 k`.
pub(crate) fn rate(x: f64) -> String {
    let (value, prefix) = match x {
        x if !x.is_finite() => return "unknown".into(),
        x if x >= 1e9 => (x / 1e9, "G"),
        x if x >= 1e6 => (x / 1e6, "M"),
        x if x >= 1e4 => (x / 1e3, "k"),
        x => (x, ""),
    };
    let space = if prefix.is_empty() { String::new() } else { NBSP.to_string() };
    if value >= 100.0 || prefix.is_empty() {
        format!("{value:.0}{space}{prefix}")
    } else {
        format!("{value:.1}{space}{prefix}")
    }
}

/// The degrees above one: `dp 2 × tp 2`.
pub(crate) fn degrees(mesh: &Mesh) -> String {
    let parts: Vec<_> = mesh.active().iter().map(|a| format!("{a}{NBSP}{}", mesh.degree(a))).collect();
    if parts.is_empty() { "one rank".into() } else { parts.join(" × ") }
}

/// The schedule's name as the field writes it in prose.
pub(crate) fn schedule(s: Schedule) -> &'static str {
    match s {
        Schedule::Gpipe => "GPipe",
        Schedule::OneForwardOneBackward => "1F1B",
    }
}

/// `dp0 tp1`: the coordinates of a rank on the axes in use, stages left out.
pub(crate) fn coordinates(mesh: &Mesh, rank: u32) -> Vec<String> {
    let axes = mesh.active().without(Axis::Pp);
    axes.iter().map(|a| format!("{a}{}", mesh.coord(rank, a))).collect()
}

fn joined(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

/// A unit that a whole axis shares, so that its ticks read alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    /// Name of the unit.
    pub(crate) name: &'static str,
    /// Base units (picoseconds, bytes) in one.
    pub(crate) size: f64,
}

impl Unit {
    /// No unit: a plain number.
    pub(crate) const NONE: Unit = Unit { name: "", size: 1.0 };
    /// The unit for times up to `max`, in picoseconds.
    pub(crate) fn of_time(max: f64) -> Self {
        Self::largest(max, &[("ps", 1.0), ("ns", 1e3), ("µs", 1e6), ("ms", 1e9), ("s", 1e12)])
    }
    /// The unit for sizes up to `max`, in bytes.
    pub(crate) fn of_bytes(max: f64) -> Self {
        let k = 1024f64;
        let units = [("B", 1.0), ("KiB", k), ("MiB", k.powi(2)), ("GiB", k.powi(3)), ("TiB", k.powi(4))];
        Self::largest(max, &units)
    }
    fn largest(max: f64, units: &[(&'static str, f64)]) -> Self {
        let fit = units.iter().rev().find(|(_, size)| max >= *size).unwrap_or(&units[0]);
        Self { name: fit.0, size: fit.1 }
    }
    /// A value already in this unit, as a tick label.
    pub(crate) fn tick(self, value: f64) -> String {
        format!("{}{NBSP}{}", plain(value), self.name).trim_end_matches(NBSP).to_string()
    }
}

/// A number without trailing zeros: `0.25`, `50`.
pub(crate) fn plain(x: f64) -> String {
    let text =
        if x.abs() >= 1e6 || (x != 0.0 && x.abs() < 1e-4) { format!("{x:e}") } else { format!("{x:.4}") };
    let text = match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    };
    text.replace('-', "−")
}

/// Round positions between two ends: at most `most` steps of 1, 2 or 5 times a power of ten.
pub(crate) fn ticks(from: f64, to: f64, most: u32) -> Vec<f64> {
    if !(from.is_finite() && to.is_finite() && to > from) {
        return vec![from];
    }
    let rough = (to - from) / f64::from(most);
    let decade = 10f64.powi(rough.log10().floor() as i32);
    let step = [1.0, 2.0, 5.0].map(|m| m * decade).into_iter().find(|s| *s >= rough).unwrap_or(10.0 * decade);
    let first = (from / step - 1e-9).ceil();
    // Whole multiples of the step, so that no tick carries the error of a sum.
    (0..=most).map(|k| (first + f64::from(k)) * step).take_while(|t| *t <= to * (1.0 + 1e-12)).collect()
}

/// Round positions on a logarithmic axis: 1, 2 and 5 times each power of ten, or the powers alone where those crowd.
pub(crate) fn log_ticks(from: f64, to: f64, most: usize) -> Vec<f64> {
    let decades = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
    let all = |steps: &[f64]| -> Vec<f64> {
        let at = |k: i32| steps.iter().map(move |m| m * 10f64.powi(k)).collect::<Vec<_>>();
        decades.clone().flat_map(at).filter(|t| (from..=to).contains(t)).collect()
    };
    let fine = all(&[1.0, 2.0, 5.0]);
    if fine.len() <= most { fine } else { all(&[1.0]) }
}

/// A position between 0 and 100 with at most three decimals, for SVG.
pub(crate) fn position(x: f64) -> String {
    let text = format!("{x:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let n = |s: String| s.replace(NBSP, " ");
        assert_eq!(n(seconds_range(0.15, 0.22)), "150–220 ms");
        assert_eq!(n(seconds_range(0.9, 1.2)), "900 ms–1.20 s");
        assert_eq!(n(signed_percent(-0.042)), "−4.2 %");
        assert_eq!(n(seconds(f64::NAN)), "unknown");
        assert_eq!(n(degrees(&Mesh::single())), "one rank");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!([plain(0.25), plain(50.0), plain(-1.5)], ["0.25", "50", "−1.5"]);
        assert_eq!(ticks(0.0, 190.0, 6), [0.0, 50.0, 100.0, 150.0]);
        assert_eq!(ticks(2.31, 5.55, 4), [3.0, 4.0, 5.0]);
        assert_eq!(log_ticks(0.3, 30.0, 9), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(position(12.5), "12.5");
    }
}
