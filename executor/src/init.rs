//! Initial parameters from a counter-based generator: an element's value is a pure function of the seed, the
//! parameter's name and the element's index in the whole tensor, so every layout starts from the same
//! numbers. The mixer is the finaliser of SplitMix64 (Steele et al., OOPSLA 2014); normals are Box–Muller in
//! f64.

/// A draw from the standard normal for element `index` of the whole parameter; |x| < 6.8.
pub fn normal(seed: u64, name: &str, index: u64) -> f32 {
    normal_at(stream(seed, name), index)
}

/// `dst[i] = std * normal(seed, name, index(i))`, where `index` maps a local element to its place in the
/// whole.
pub fn fill_normal(dst: &mut [f32], seed: u64, name: &str, std: f32, index: impl Fn(usize) -> u64) {
    let stream = stream(seed, name);
    for (i, x) in dst.iter_mut().enumerate() {
        *x = std * normal_at(stream, index(i));
    }
}

/// The 64 bits that a parameter's elements start from: FNV-1a of the name, mixed with the seed.
fn stream(seed: u64, name: &str) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    mix(mix(seed) ^ name.bytes().fold(0xCBF2_9CE4_8422_2325, fnv))
}

fn normal_at(stream: u64, index: u64) -> f32 {
    let bits = mix(stream ^ mix(index));
    let unit = 2.0f64.powi(-32);
    let log = (((bits >> 32) as f64 + 0.5) * unit).ln();
    let angle = (bits as u32) as f64 * unit * std::f64::consts::TAU;
    ((-2.0 * log).sqrt() * angle.cos()) as f32
}

/// A bijection of 64 bits in which every input bit moves about half of the output bits.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
