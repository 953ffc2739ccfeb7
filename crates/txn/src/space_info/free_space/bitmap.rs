//! Free space of a fragmented block group: a bit for each sector, and above the bits a tree of the runs.
//!
//! A leaf of the tree covers [`LEAF`] sectors, a node above covers its two children; each has the number of
//! free sectors at its front, at its back, and in its longest run. So a search from the root finds the first run of a length,
//! also where it crosses leaves. Changes only set bits; the next search recounts the stale nodes.

/// Sectors of a leaf: as many as a bitmap item covers.
const LEAF: u64 = 2048;
const WORD_BITS: u64 = u64::BITS as u64;
const LEAF_WORDS: usize = (LEAF / WORD_BITS) as usize;

/// Runs of free sectors in a part of the group.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Runs {
    front: u64,
    longest: u64,
    back: u64,
}

/// Bits have changed since these were counted.
const STALE: Runs = Runs { front: u64::MAX, longest: u64::MAX, back: u64::MAX };

/// Free sectors, counted from a number that is a multiple of 64.
#[derive(Debug)]
pub(super) struct Bitmap {
    /// A bit for each sector, set when it is free.
    words: Vec<u64>,
    /// The tree: its root at 1, children of `n` at `2n` and `2n + 1`, leaves last.
    nodes: Vec<Runs>,
    /// Leaves that are [`STALE`].
    stale: Vec<u32>,
    free: u64,
    runs: u64,
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("an index into memory that is there")
}

/// Number of leaves that cover so many sectors, and number of leaves of a complete tree.
fn leaves(sectors: u64) -> (u64, u64) {
    let used = sectors.div_ceil(LEAF).max(1);
    (used, used.next_power_of_two())
}

impl Bitmap {
    /// Memory of a bitmap of so many sectors, bytes.
    pub(super) fn bytes(sectors: u64) -> u64 {
        let (used, whole) = leaves(sectors);
        used * (LEAF / 8 + size_of::<u32>() as u64) + 2 * whole * size_of::<Runs>() as u64
    }

    /// Creates a bitmap of so many sectors, none of them free.
    pub(super) fn new(sectors: u64) -> Self {
        let (used, whole) = leaves(sectors);
        Self {
            words: vec![0; index(used) * LEAF_WORDS],
            nodes: vec![Runs::default(); 2 * index(whole)],
            stale: Vec::with_capacity(index(used)),
            free: 0,
            runs: 0,
        }
    }

    /// Free sectors.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Number of maximal runs of free sectors.
    pub(super) fn runs(&self) -> u64 {
        self.runs
    }

    /// Memory on the heap, bytes.
    pub(super) fn memory(&self) -> u64 {
        let (words, nodes) = (size_of_val(&self.words[..]), size_of_val(&self.nodes[..]));
        (words + nodes + self.stale.capacity() * size_of::<u32>()) as u64
    }

    /// Whether any of these sectors is free.
    pub(super) fn any_free(&self, first: u64, count: u64) -> bool {
        masks(first, count).any(|(word, mask)| self.words[word] & mask != 0)
    }

    /// Makes sectors free, none of which was, or takes sectors, all of which were free.
    pub(super) fn set(&mut self, first: u64, count: u64, free: bool) {
        for (word, mask) in masks(first, count) {
            let before = self.words[word] & mask;
            assert!(before == if free { 0 } else { mask }, "sectors from {first} on are not what they were");
            self.words[word] ^= mask;
        }
        let before = first.checked_sub(1).is_some_and(|sector| self.is_free(sector));
        let touching = u64::from(before) + u64::from(self.is_free(first + count));
        if free {
            self.free += count;
            self.runs = self.runs + 1 - touching;
        } else {
            self.free -= count;
            self.runs = self.runs + touching - 1;
        }
        for leaf in first / LEAF..=(first + count - 1) / LEAF {
            let node = self.nodes.len() / 2 + index(leaf);
            if self.nodes[node] != STALE {
                self.nodes[node] = STALE;
                self.stale.push(u32::try_from(leaf).expect("a group of less than 2^43 sectors"));
            }
        }
    }

    fn is_free(&self, sector: u64) -> bool {
        self.words.get(index(sector / WORD_BITS)).is_some_and(|word| word >> (sector % WORD_BITS) & 1 == 1)
    }

    /// Recounts stale leaves, then the nodes above them.
    fn refresh(&mut self) {
        let leaves = self.nodes.len() / 2;
        for leaf in self.stale.iter().map(|&leaf| leaf as usize) {
            self.nodes[leaves + leaf] = runs_of(&self.words[leaf * LEAF_WORDS..][..LEAF_WORDS]);
        }
        for leaf in self.stale.drain(..) {
            let (mut node, mut span) = (leaves + leaf as usize, LEAF);
            while node > 1 {
                node /= 2;
                self.nodes[node] = joined(self.nodes[2 * node], self.nodes[2 * node + 1], span);
                span *= 2;
            }
        }
    }

    /// Sectors in the longest run.
    pub(super) fn longest(&mut self) -> u64 {
        self.refresh();
        self.nodes[1].longest
    }

    /// The start of the first run of at least `count` sectors.
    pub(super) fn first_fit(&mut self, count: u64) -> Option<u64> {
        if self.longest() < count {
            return None;
        }
        let leaves = self.nodes.len() / 2;
        let (mut node, mut at, mut span) = (1, 0, leaves as u64 * LEAF);
        while node < leaves {
            span /= 2;
            let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
            if left.longest >= count {
                node *= 2;
            } else if left.back + right.front >= count {
                return Some(at + span - left.back);
            } else {
                node = 2 * node + 1;
                at += span;
            }
        }
        let mut runs = runs(&self.words[index(at / WORD_BITS)..][..LEAF_WORDS]);
        let found = runs.find(|&(_, found)| found >= count);
        Some(at + found.expect("the leaf counted such a run").0)
    }

    /// The first place at or behind `from` for `count` sectors, a power of two up to 64, at a multiple of `count`.
    pub(super) fn first_aligned(&mut self, count: u64, from: u64) -> Option<u64> {
        self.refresh();
        let leaves = &self.nodes[self.nodes.len() / 2..];
        let first = index(from / WORD_BITS);
        let all = self.words.iter().enumerate().skip(first);
        let mut fitting = all.filter(|&(word, _)| leaves[word / LEAF_WORDS].longest >= count);
        fitting.find_map(|(word, &bits)| {
            let behind = if word == first { u64::MAX << (from % WORD_BITS) } else { u64::MAX };
            let places = aligned_places(bits, count) & behind;
            (places != 0).then(|| word as u64 * WORD_BITS + u64::from(places.trailing_zeros()))
        })
    }

    /// The first run of free sectors in `[from, to)`: its start and its length.
    pub(super) fn first_part(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let first = self.next(from, to, true)?;
        Some((first, self.next(first, to, false).unwrap_or(to) - first))
    }

    /// The first sector of `[from, to)` that is free, or is not.
    fn next(&self, from: u64, to: u64, free: bool) -> Option<u64> {
        masks(from, to - from).find_map(|(word, mask)| {
            let found = if free { self.words[word] } else { !self.words[word] } & mask;
            (found != 0).then(|| word as u64 * WORD_BITS + u64::from(found.trailing_zeros()))
        })
    }

    /// All runs, in order: first sector and sectors.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        runs(&self.words)
    }
}

/// The words that hold these sectors' bits, with the bits that are theirs.
fn masks(first: u64, count: u64) -> impl Iterator<Item = (usize, u64)> {
    let end = first + count;
    (first / WORD_BITS..end.div_ceil(WORD_BITS)).map(move |word| {
        let start = word * WORD_BITS;
        let (low, high) = (first.max(start) - start, end.min(start + WORD_BITS) - start);
        (index(word), (u64::MAX >> (WORD_BITS - (high - low))) << low)
    })
}

/// The bits at which `count` set bits begin at a multiple of `count`.
fn aligned_places(mut bits: u64, count: u64) -> u64 {
    assert!(count.is_power_of_two() && count <= WORD_BITS, "{count} sectors do not lie in one word");
    let multiples = u64::MAX / (u64::MAX >> (WORD_BITS - count));
    let mut shift = 1;
    while shift < count {
        bits &= bits >> shift;
        shift *= 2;
    }
    bits & multiples
}

fn runs_of(words: &[u64]) -> Runs {
    let (mut front, mut longest, mut open) = (None, 0, 0);
    for &word in words {
        if word == u64::MAX {
            open += WORD_BITS;
            continue;
        }
        open += u64::from(word.trailing_ones());
        front.get_or_insert(open);
        longest = longest.max(open).max(longest_inside(word));
        open = u64::from(word.leading_ones());
    }
    Runs { front: front.unwrap_or(open), longest: longest.max(open), back: open }
}

fn longest_inside(mut word: u64) -> u64 {
    let mut longest = 0;
    while word != 0 {
        word &= word << 1;
        longest += 1;
    }
    longest
}

/// The runs of two neighbours of `span` sectors each.
fn joined(left: Runs, right: Runs, span: u64) -> Runs {
    Runs {
        front: if left.front == span { span + right.front } else { left.front },
        longest: left.longest.max(right.longest).max(left.back + right.front),
        back: if right.back == span { span + left.back } else { right.back },
    }
}

/// The runs of set bits in these words, in order: first bit and bits.
fn runs(words: &[u64]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let bits = words.len() as u64 * WORD_BITS;
    let next = move |from: u64, set: bool| {
        let mut at = from;
        while at < bits {
            let word = words[index(at / WORD_BITS)];
            let wanted = (if set { word } else { !word }) & (u64::MAX << (at % WORD_BITS));
            if wanted != 0 {
                return at / WORD_BITS * WORD_BITS + u64::from(wanted.trailing_zeros());
            }
            at = (at / WORD_BITS + 1) * WORD_BITS;
        }
        bits
    };
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = next(at, true);
        at = next(first, false);
        (first < bits).then_some((first, at - first))
    })
}
