//! Data of several kinds for tests, all of it determined by its length and seed.

/// Numbers from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Bytes with equal probabilities.
pub(crate) fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    (0..len).map(|_| dice.next() as u8).collect()
}

/// Words, some of them more frequent than others.
pub(crate) fn text(len: usize) -> Vec<u8> {
    let words = "the of and to a in is it you that he was for on are with as I his they be at one have this \
                 from or had by hot but some what there we can out other were all your when up use word how";
    let words: Vec<&str> = words.split(' ').collect();
    let mut dice = Dice::new(len as u64);
    let mut text = Vec::new();
    while text.len() < len {
        let most = 1 + dice.below(words.len());
        text.extend_from_slice(words[dice.below(most)].as_bytes());
        text.push(b" \n"[usize::from(dice.below(12) == 0)]);
    }
    text.truncate(len);
    text
}

/// Records of numbers that are small, or close to the one before.
pub(crate) fn numbers(len: usize) -> Vec<u8> {
    let mut dice = Dice::new(len as u64);
    let mut records = Vec::new();
    let mut last = 0_u64;
    while records.len() < len {
        last += dice.below(10_000) as u64;
        records.extend(last.to_le_bytes());
        records.extend((dice.below(300) as u32).to_le_bytes());
        records.extend((dice.next() as u16).to_le_bytes());
        records.extend([0xff, 0]);
    }
    records.truncate(len);
    records
}

/// Stretches of all kinds and all lengths, with repetitions from near and far.
pub(crate) fn mixed(len: usize) -> Vec<u8> {
    let mut dice = Dice::new(len as u64);
    let mut data = Vec::new();
    while data.len() < len {
        let most = 1 << dice.below(13);
        let stretch = 1 + dice.below(most);
        match dice.below(5) {
            0 => data.extend(vec![dice.next() as u8; stretch]),
            1 => data.extend(text(stretch)),
            2 => data.extend(numbers(stretch)),
            3 if !data.is_empty() => {
                let from = dice.below(data.len());
                data.extend_from_within(from..data.len().min(from + stretch));
            }
            _ => data.extend(random(stretch, dice.next())),
        }
    }
    data.truncate(len);
    data
}
