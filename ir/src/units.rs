//! Units as types: bytes, floating-point operations, picoseconds, and the two rates that connect them. Sizes and times
//! are integers with checked arithmetic (release builds keep overflow checks), so sums do not depend on their order.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

macro_rules! integer_unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0);
            /// The number itself.
            pub fn get(self) -> u64 { self.0 }
            /// Subtraction that stops at zero.
            pub fn saturating_sub(self, other: Self) -> Self { Self(self.0.saturating_sub(other.0)) }
        }
        impl Add for $name { type Output = Self; fn add(self, o: Self) -> Self { Self(self.0 + o.0) } }
        impl Sub for $name { type Output = Self; fn sub(self, o: Self) -> Self { Self(self.0 - o.0) } }
        impl AddAssign for $name { fn add_assign(&mut self, o: Self) { self.0 += o.0 } }
        impl Mul<u64> for $name { type Output = Self; fn mul(self, k: u64) -> Self { Self(self.0 * k) } }
        impl Mul<$name> for u64 { type Output = $name; fn mul(self, u: $name) -> $name { u * self } }
        impl Div<u64> for $name { type Output = Self; fn div(self, k: u64) -> Self { Self(self.0 / k) } }
        impl Sum for $name { fn sum<I: Iterator<Item = Self>>(it: I) -> Self { it.fold(Self(0), |a, b| a + b) } }
        impl<'a> Sum<&'a $name> for $name { fn sum<I: Iterator<Item = &'a Self>>(it: I) -> Self { it.copied().sum() } }
    };
}

integer_unit!(
    /// A size in bytes.
    Bytes
);
integer_unit!(
    /// A count of floating-point operations (a multiply-add is two).
    Flops
);
integer_unit!(
    /// A duration or an instant of one step, in picoseconds. 2^64 ps is seven months.
    Time
);

impl Bytes {
    /// `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
    /// Rounded up to a multiple of `to` (an allocator's granule).
    pub fn align(self, to: u64) -> Self {
        Self(self.0.div_ceil(to) * to)
    }
    /// The size as a float, for rates.
    pub fn f64(self) -> f64 {
        self.0 as f64
    }
}

impl Time {
    /// The longest duration made of seconds: 53 days, so that a few of them still add up.
    const LONGEST: u64 = 1 << 62;
    /// From seconds, at most 2^62 picoseconds; negative or non-finite seconds are a broken invariant of the caller.
    pub fn from_seconds(s: f64) -> Self {
        assert!(s.is_finite() && s >= 0.0, "a duration of {s} s");
        Self(((s * 1e12).round() as u64).min(Self::LONGEST))
    }
    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }
    /// `n` microseconds.
    pub const fn micros(n: u64) -> Self {
        Self(n * 1_000_000)
    }
}

macro_rules! rate_unit {
    ($(#[$doc:meta])* $name:ident, $amount:ident, $noun:literal, $unit:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// Per second, as a float: finite and above zero.
            pub fn get(self) -> f64 { self.0 }
            /// How long `amount` takes at this rate.
            pub fn time(self, amount: $amount) -> Time { Time::from_seconds(amount.0 as f64 / self.0) }
            /// This rate times a factor above zero.
            pub fn scaled(self, factor: f64) -> Self {
                assert!(factor.is_finite() && factor > 0.0, "a rate scaled by {factor}");
                Self(self.0 * factor)
            }
        }
        impl TryFrom<f64> for $name {
            type Error = String;
            fn try_from(x: f64) -> Result<Self, String> {
                if x.is_finite() && x > 0.0 { Ok(Self(x)) } else { Err(format!("{x} is no {}: write a finite number above 0, in {}", $noun, $unit)) }
            }
        }
        impl From<$name> for f64 { fn from(r: $name) -> f64 { r.0 } }
    };
}

rate_unit!(
    /// Bytes per second.
    Bandwidth, Bytes, "bandwidth", "bytes per second"
);
rate_unit!(
    /// Floating-point operations per second.
    FlopRate, Flops, "compute rate", "operations per second"
);

/// Three significant digits with a prefix: how a person reads a size.
fn scaled(f: &mut fmt::Formatter<'_>, value: f64, step: f64, units: &[&str]) -> fmt::Result {
    let mut v = value;
    let mut k = 0;
    while v >= step && k + 1 < units.len() {
        v /= step;
        k += 1;
    }
    let text = match v {
        v if k == 0 => format!("{v:.0} {}", units[0]),
        v if v >= 100.0 => format!("{v:.0} {}", units[k]),
        v if v >= 10.0 => format!("{v:.1} {}", units[k]),
        v => format!("{v:.2} {}", units[k]),
    };
    f.pad(&text)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0 as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
    }
}
impl fmt::Display for Flops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0 as f64, 1000.0, &["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"])
    }
}
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0 as f64, 1000.0, &["ps", "ns", "µs", "ms", "s"])
    }
}
impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
    }
}
impl fmt::Display for FlopRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1000.0, &["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_reads_three_digits() {
        let shown = [
            Bytes(512).to_string(),
            Bytes(1536).to_string(),
            Bytes::gib(80).to_string(),
            Time::micros(1234).to_string(),
        ];
        assert_eq!(shown, ["512 B", "1.50 KiB", "80.0 GiB", "1.23 ms"]);
    }

    #[test]
    fn rates_refuse_what_is_no_rate() {
        for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert!(Bandwidth::try_from(bad).is_err() && FlopRate::try_from(bad).is_err());
        }
        assert_eq!(Bandwidth::try_from(2e9).unwrap().time(Bytes(1000)), Time(500_000));
    }
}
