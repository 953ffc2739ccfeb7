//! What a power cut can leave on a device, made from the log of its writes and flushes.
//!
//! # What is possible
//! The log falls into epochs, each ended by a flush. When the power fails in an epoch, everything of the epochs
//! before is on the platter (sheet 4), and of the writes begun in this one any part: none, all, some, in any order,
//! and one that was cut off in sectors of 512 bytes or in pages (sheet 5). Only a superblock copy is whole or not
//! there (sheet 6); torn ones are a [`Class`] of their own, which promises less.
//!
//! # Invariants
//! - CUT-1: whatever is made lies within the sheet: it follows from the log, a position and a choice of writes.
//! - CUT-2: the same seed makes the same states in the same order.

use std::collections::HashSet;
use std::ops::Range;

use creamery_testkit::Random;

use crate::device::{Event, SimDevice};
use crate::image::{Image, PAGE, Page};

/// How a state comes about.
///
/// ```
/// assert_eq!(creamery_sim::Class::ALL.len(), 8);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Everything up to a flush, and the flush.
    Boundary,
    /// Everything up to some write, in order.
    Prefix,
    /// An epoch without one of its writes.
    DroppedOne,
    /// Any of the writes of an epoch up to some write.
    Subset,
    /// Any of them in any order.
    Reordered,
    /// One of them cut off in sectors of 512 bytes.
    Torn512,
    /// One of them cut off in pages of 4096 bytes.
    Torn4096,
    /// A superblock copy cut off in sectors, against the sheet.
    TornSuperblock,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Boundary,
        Self::Prefix,
        Self::DroppedOne,
        Self::Subset,
        Self::Reordered,
        Self::Torn512,
        Self::Torn4096,
        Self::TornSuperblock,
    ];
}

/// One state.
///
/// ```
/// fn is_plain(state: &creamery_sim::CutState) -> bool {
///     state.class == creamery_sim::Class::Boundary
/// }
/// ```
#[derive(Clone, Debug)]
pub struct CutState {
    /// What the device holds.
    pub image: Image,
    /// Writes and flushes of the log that had begun.
    pub position: usize,
    /// How it comes about.
    pub class: Class,
    /// That in words.
    pub story: String,
}

/// A log, ready for making states.
///
/// ```no_run
/// # fn example(mut cut: creamery_sim::PowerCut) {
/// while let Some(state) = cut.next_state() {
///     println!("{}", state.story);
/// }
/// # }
/// ```
pub struct PowerCut {
    events: Vec<Event>,
    /// Positions of the writes of each epoch, and what is on the platter when it begins.
    epochs: Vec<(Range<usize>, Image)>,
    random: Random,
    seen: HashSet<u64>,
    boundaries: usize,
    torn_superblocks: bool,
}

/// Tries without a state that was not seen before, after which there are no more.
const TRIES_MAX: usize = 2000;

impl PowerCut {
    /// States of a device that held `base` before all that it noted, which it forgets.
    #[must_use]
    pub fn of(device: &SimDevice, base: &Image, seed: u64) -> Self {
        Self::new(base.clone(), device.take_log(), seed, false)
    }

    /// States of a device that held `base` before `events`. Torn superblocks only where that is said.
    pub(crate) fn new(base: Image, events: Vec<Event>, seed: u64, torn_superblocks: bool) -> Self {
        let mut epochs = Vec::new();
        let (mut platter, mut start) = (base, 0);
        let ends = (0..events.len()).filter(|&at| matches!(events[at], Event::Flush));
        for end in ends.chain([events.len()]) {
            let before = platter.clone();
            events[start..end].iter().for_each(|event| apply(&mut platter, event));
            epochs.push((start..end, before));
            start = end + 1;
        }
        Self {
            events,
            epochs,
            random: Random::new(seed),
            seen: HashSet::new(),
            boundaries: 0,
            torn_superblocks,
        }
    }

    /// Distinct states made so far.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.seen.len()
    }

    /// The next state that was not there before: a boundary and a choice from the other classes in turn, so that a few states are of all
    /// classes, too. None when no new ones are found.
    pub fn next_state(&mut self) -> Option<CutState> {
        if self.seen.len().is_multiple_of(2) {
            self.next_boundary().or_else(|| self.next_choice())
        } else {
            self.next_choice().or_else(|| self.next_boundary())
        }
    }

    fn next_boundary(&mut self) -> Option<CutState> {
        while self.boundaries < self.epochs.len() {
            let (range, platter) = self.epochs[self.boundaries].clone();
            self.boundaries += 1;
            let state = self.state(platter, range.start, Class::Boundary, String::new());
            if self.seen.insert(state.image.hash()) {
                return Some(state);
            }
        }
        None
    }

    fn next_choice(&mut self) -> Option<CutState> {
        for _ in 0..TRIES_MAX {
            if let Some(state) = self.choose()
                && self.seen.insert(state.image.hash())
            {
                return Some(state);
            }
        }
        None
    }

    /// What is new of what it leaves once the event before `position` had begun: of its epoch nothing, all up to that one in order,
    /// all but one, or that one alone.
    pub fn states_at(&mut self, position: usize) -> Vec<CutState> {
        let number = self.epochs.partition_point(|(range, _)| range.end < position);
        let Some((range, platter)) = self.epochs.get(number).cloned() else { return Vec::new() };
        let begun: Vec<usize> = (range.start..position.min(range.end)).collect();
        let last = begun.last().copied();
        let lost = begun.get(self.below(begun.len().max(1))).copied();
        let choices: [(Class, &dyn Fn(usize) -> bool); 4] = [
            (Class::Boundary, &|_| false),
            (Class::Prefix, &|_| true),
            (Class::DroppedOne, &|at| Some(at) != lost),
            (Class::Subset, &|at| Some(at) == last),
        ];
        let mut states = Vec::new();
        for (class, lands) in choices {
            let mut image = platter.clone();
            begun.iter().filter(|at| lands(**at)).for_each(|at| apply(&mut image, &self.events[*at]));
            if self.seen.insert(image.hash()) {
                let more =
                    if class == Class::DroppedOne { format!(" without {lost:?}") } else { String::new() };
                states.push(self.state(image, position, class, more));
            }
        }
        states
    }

    /// A state after the whole log: any of the writes of the last epoch, none of them the first time.
    pub(crate) fn next_at_end(&mut self) -> Option<Image> {
        let (range, platter) = self.epochs.last()?.clone();
        for odds in [0, 1, 3, 6] {
            let mut image = platter.clone();
            for at in range.clone() {
                if self.random.below(8) < odds {
                    apply(&mut image, &self.events[at]);
                }
            }
            if self.seen.insert(image.hash()) {
                return Some(image);
            }
        }
        None
    }

    fn state(&self, image: Image, position: usize, class: Class, more: String) -> CutState {
        let story = format!("{class:?} at {position} of {}{more}", self.events.len());
        CutState { image, position, class, story }
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).expect("below a usize")
    }

    fn choose(&mut self) -> Option<CutState> {
        let number = self.below(self.epochs.len());
        let (range, mut image) = self.epochs[number].clone();
        if range.is_empty() {
            return None;
        }
        let classes = if self.torn_superblocks { 7 } else { 6 };
        let class = Class::ALL[1 + self.below(classes)];
        let position = match class {
            Class::DroppedOne => range.end,
            _ => range.start + 1 + self.below(range.len()),
        };
        let mut begun: Vec<usize> = (range.start..position).collect();
        let mut more = String::new();
        match class {
            Class::Boundary | Class::Prefix => {}
            Class::DroppedOne => {
                let dropped = begun.remove(self.below(range.len()));
                more = format!(" without {dropped}");
            }
            Class::Subset | Class::Reordered => {
                let odds = 1 + self.below(7);
                begun.retain(|_| self.random.below(8) < odds as u64);
                if class == Class::Reordered {
                    self.random.shuffle(&mut begun);
                }
                more = format!(": {begun:?}");
            }
            Class::Torn512 | Class::Torn4096 | Class::TornSuperblock => {
                let wanted =
                    |at: &usize| self.events[*at].is_superblock() == (class == Class::TornSuperblock);
                let torn: Vec<usize> = begun.iter().copied().filter(wanted).collect();
                if torn.is_empty() {
                    return None;
                }
                let torn = torn[self.below(torn.len())];
                let others = self.random.below(2) == 0;
                begun.retain(|&at| at != torn && (others || at < torn));
                let unit = if class == Class::Torn4096 { PAGE } else { 512 };
                let torn_event = self.events[torn].clone();
                begun.iter().filter(|&&at| at < torn).for_each(|&at| apply(&mut image, &self.events[at]));
                begun.retain(|&at| at > torn);
                tear(&mut image, &torn_event, unit, &mut self.random);
                more = format!(": {torn} torn, later ones {}", if others { "whole" } else { "lost" });
            }
        }
        begun.iter().for_each(|&at| apply(&mut image, &self.events[at]));
        Some(self.state(image, position, class, more))
    }
}

fn apply(image: &mut Image, event: &Event) {
    if let Event::Write { first, pages } = event {
        for (number, page) in (*first..).zip(pages) {
            image.put(number, page.clone());
        }
    }
}

/// Puts some of the units of a write in place.
fn tear(image: &mut Image, event: &Event, unit: usize, random: &mut Random) {
    let Event::Write { first, pages } = event else { return };
    let bytes: Vec<u8> = pages.iter().flat_map(|page: &std::sync::Arc<Page>| *page.bytes()).collect();
    let cut = random.below((bytes.len() / unit) as u64 + 1);
    let way = random.below(3);
    for (number, part) in (0..).zip(bytes.chunks(unit)) {
        let lands = match way {
            0 => number < cut,
            1 => number >= cut,
            _ => random.below(2) == 0,
        };
        if lands {
            image.write(first * PAGE as u64 + number * unit as u64, part);
        }
    }
}
