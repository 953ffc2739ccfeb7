//! A small generator of pseudo-random numbers: the same seed gives the same tree on every machine.

/// SplitMix64, enough for sizes, names and content.
///
/// ```
/// use creamery_testkit::Random;
/// assert_eq!(Random::new(7).next_u64(), Random::new(7).next_u64());
/// ```
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that starts from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number in `0..bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// A number in `(0, 1]`.
    pub fn unit(&mut self) -> f64 {
        let bits = (self.next_u64() >> 11) + 1;
        bits as f64 / (1u64 << 53) as f64
    }

    /// A number of the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// `len` bytes that do not compress.
    #[must_use]
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            out.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        out.truncate(len);
        out
    }

    /// `len` bytes that compress about as well as prose: words, some of them much more often than others.
    ///
    /// ```
    /// let text = creamery_testkit::Random::new(1).text(1000);
    /// assert!(text.len() == 1000 && text.is_ascii());
    /// ```
    #[must_use]
    pub fn text(&mut self, len: usize) -> Vec<u8> {
        const WORDS: u64 = 24;
        let letter = |random: &mut Self| b'a' + random.below(26) as u8;
        let words: Vec<Vec<u8>> =
            (0..WORDS * WORDS).map(|_| (0..2 + self.below(9)).map(|_| letter(self)).collect()).collect();
        let mut out = Vec::with_capacity(len + 16);
        while out.len() < len {
            // A product is small more often than large.
            let word = self.below(WORDS) * self.below(WORDS);
            out.extend_from_slice(&words[word as usize]);
            out.push(b' ');
        }
        out.truncate(len);
        out
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}
