//! Changing the free space of a group: a plan of runs at once, with one look at the info item.

use creamery_base::{Logical, Result, Wait};
use creamery_format::{Key, KeyType};
use creamery_tree::CowHost;

use super::group::{GroupFreeSpace, Info, THRESHOLD_GAP, damaged, end_of, extent_key};

/// A run of space that became used or free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpaceRun {
    pub(crate) start: Logical,
    pub(crate) len: u64,
    pub(crate) freed: bool,
}

impl SpaceRun {
    pub(crate) fn end(&self) -> Logical {
        self.start + self.len
    }
}

/// Changes of space in a step, in the order of addresses, with adjacent runs joined: one change of the tree
/// covers many neighbouring extents.
#[derive(Default, Debug)]
pub(crate) struct SpacePlan(Vec<SpaceRun>);

impl SpacePlan {
    /// Adds an extent.
    pub(crate) fn push(&mut self, start: Logical, len: u64, freed: bool) {
        match self.0.last_mut() {
            Some(last) if last.freed == freed && last.end() == start => last.len += len,
            _ => self.0.push(SpaceRun { start, len, freed }),
        }
    }

    /// The runs, cut at the ends of groups; `group_at` gives an address's group and its end.
    pub(crate) fn by_group<G>(
        self,
        group_at: impl Fn(Logical) -> Result<(G, Logical)>,
    ) -> Result<Vec<(G, Vec<SpaceRun>)>> {
        let mut groups: Vec<(G, Vec<SpaceRun>)> = Vec::new();
        let mut group_end = Logical::new(0);
        for mut rest in self.0 {
            while rest.len > 0 {
                // Extents run in ascending order.
                if groups.is_empty() || rest.start >= group_end {
                    let (group, end) = group_at(rest.start)?;
                    group_end = end;
                    groups.push((group, Vec::new()));
                }
                let len = rest.end().min(group_end).get() - rest.start.get();
                if let Some((_, runs)) = groups.last_mut() {
                    runs.push(SpaceRun { len, ..rest });
                }
                rest = SpaceRun { start: rest.start + len, len: rest.len - len, ..rest };
            }
        }
        Ok(groups)
    }
}

impl GroupFreeSpace {
    /// Brings the group up to date for `runs`, which all lie in it: freed runs were used before, and used runs were free.
    ///
    /// # Errors
    /// No space, device errors; damage.
    pub(crate) fn apply(&self, host: &dyn CowHost, runs: &[SpaceRun]) -> Result<()> {
        let before = self.info()?;
        let mut info = before;
        for run in runs {
            match (info.uses_bitmaps(), run.freed) {
                (true, _) => self.change_bits(host, &mut info, run)?,
                (false, true) => self.add(host, &mut info, run)?,
                (false, false) => self.remove(host, &mut info, run)?,
            }
        }
        if info != before {
            self.set_info(host, info)?;
        }
        let threshold = self.bitmap_threshold();
        if !info.uses_bitmaps() && u64::from(info.extents) > threshold {
            self.convert_to_bitmaps(host, info)
        } else if info.uses_bitmaps() && u64::from(info.extents) < threshold.saturating_sub(THRESHOLD_GAP) {
            self.convert_to_extents(host, info)
        } else {
            Ok(())
        }
    }

    /// Removes a range, all of it free, from the extents.
    fn remove(&self, host: &dyn CowHost, info: &mut Info, run: &SpaceRun) -> Result<()> {
        let &SpaceRun { start, len, .. } = run;
        let last = extent_key(start.get(), u64::MAX);
        let found = self.tree.cursor_at_or_before(&last, Wait::Yes)?.item().map(|(key, _)| key);
        let end = start.get() + len;
        let found = found.filter(|key| {
            key.kind == KeyType::FREE_SPACE_EXTENT
                && (self.group.start..=start).contains(&Logical::new(key.objectid.get()))
                && end_of(key).is_some_and(|key_end| (end..=self.group.end().get()).contains(&key_end))
        });
        let Some(found) = found else {
            return Err(damaged(
                self.group,
                &format!("{start} of {len} bytes is to be used and is not free"),
            ));
        };
        let (free_start, free_end) = (found.objectid.get(), found.objectid.get() + found.offset);
        match (free_start < start.get(), end < free_end) {
            (false, false) => {
                self.tree.remove(host, &found)?;
                info.extents = self.counted(info.extents, 1)?;
            }
            (true, false) => self.rekey(host, &found, &extent_key(free_start, start.get() - free_start))?,
            (false, true) => self.rekey(host, &found, &extent_key(end, free_end - end))?,
            (true, true) => {
                self.rekey(host, &found, &extent_key(free_start, start.get() - free_start))?;
                self.tree.insert(host, &extent_key(end, free_end - end), &[])?;
                info.extents += 1;
            }
        }
        Ok(())
    }

    /// Adds a range, none of it free, to the extents.
    fn add(&self, host: &dyn CowHost, info: &mut Info, run: &SpaceRun) -> Result<()> {
        let &SpaceRun { start, len, .. } = run;
        let (from, to) = (start.get(), start.get() + len);
        let before = extent_key(from, u64::MAX);
        let is_extent = |key: &Key| {
            key.kind == KeyType::FREE_SPACE_EXTENT && key.objectid.get() >= self.group.start.get()
        };
        let before = self.tree.cursor_at_or_before(&before, Wait::Yes)?.item().map(|(key, _)| key);
        let before = before.filter(|key| is_extent(key) && end_of(key).is_some_and(|end| end >= from));
        if let Some(key) = before.filter(|key| end_of(key) > Some(from) && key.objectid.get() < to) {
            let message = format!("{start} of {len} bytes is freed but already free, in {key}");
            return Err(damaged(self.group, &message));
        }
        let before = before.filter(|key| end_of(key) == Some(from));
        let behind = self.tree.cursor(&extent_key(to, 0), Wait::Yes)?.item().map(|(key, _)| key);
        let in_group = to < self.group.end().get();
        let behind = behind.filter(|key| in_group && is_extent(key) && key.objectid.get() == to);
        let behind_end = match &behind {
            Some(key) => end_of(key).ok_or_else(|| damaged(self.group, "an extent has no end"))?,
            None => to,
        };
        match (before, behind) {
            (Some(before), Some(behind)) => {
                self.tree.remove(host, &behind)?;
                info.extents = self.counted(info.extents, 1)?;
                let first = before.objectid.get();
                self.rekey(host, &before, &extent_key(first, behind_end - first))
            }
            (Some(before), None) => {
                let first = before.objectid.get();
                self.rekey(host, &before, &extent_key(first, to - first))
            }
            (None, Some(behind)) => self.rekey(host, &behind, &extent_key(from, behind_end - from)),
            (None, None) => {
                self.tree.insert(host, &extent_key(from, len), &[])?;
                info.extents = info.extents.saturating_add(1);
                Ok(())
            }
        }
    }

    /// Changes the bounds of a free extent that was just found; its place among the others stays.
    fn rekey(&self, host: &dyn CowHost, key: &Key, new: &Key) -> Result<()> {
        let found = self.tree.rekey(host, key, new, |_| ())?;
        if found { Ok(()) } else { Err(damaged(self.group, &format!("{key} is out of place"))) }
    }

    /// The extent count of the info item, less `less`.
    pub(super) fn counted(&self, extents: u32, less: u32) -> Result<u32> {
        extents.checked_sub(less).ok_or_else(|| damaged(self.group, "the info item counts too few extents"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_run_and_groups_cut_it() {
        let mut plan = SpacePlan::default();
        for (start, len, freed) in
            [(10, 5, true), (15, 5, true), (20, 5, false), (30, 5, false), (95, 10, true)]
        {
            plan.push(Logical::new(start), len, freed);
        }
        let group_at = |at: Logical| Ok((at.get() / 100, Logical::new((at.get() / 100 + 1) * 100)));
        let groups = plan.by_group(group_at).expect("no damage");
        let seen: Vec<_> = groups
            .iter()
            .map(|(group, runs)| {
                let runs: Vec<_> = runs.iter().map(|run| (run.start.get(), run.len, run.freed)).collect();
                (*group, runs)
            })
            .collect();
        let first = vec![(10, 10, true), (20, 5, false), (30, 5, false), (95, 5, true)];
        assert_eq!(seen, [(0, first), (1, vec![(100, 5, true)])]);
    }
}
