//! Space by directory: the large ones, and how much of each is exclusive.
//!
//! [`crate::extents::Extents::disk_usage`](crate::extents::Extents::disk_usage) gives the tree, with files and directories after their
//! content. Names with less than a given share of all space are not kept; their bytes count in the directory above. So memory depends on
//! the picture, and not on the number of files.

use std::path::Path;

use super::svg::{Area, Picture, clipped};
use crate::extents::FileUsage;
use creamery_base::{Escaped, HumanSize};

/// Files and directories that are kept; beyond that the smaller half goes.
const KEPT_MAX: usize = 4096;

/// A file or directory.
#[derive(Clone, Default, Debug)]
pub(super) struct TreemapNode {
    name: String,
    usage: FileUsage,
    below: Vec<TreemapNode>,
}

/// The tree during the count.
pub(super) struct Gathered {
    /// For each depth, the nodes whose directory is still to come.
    waiting: Vec<Vec<TreemapNode>>,
    kept: usize,
    least: u64,
}

impl Gathered {
    /// Keeps nodes of at least `least` bytes.
    pub(super) const fn new(least: u64) -> Self {
        Self { waiting: Vec::new(), kept: 0, least }
    }

    /// Adds the next file or directory.
    pub(super) fn add(&mut self, path: &Path, usage: FileUsage) {
        let depth = path.components().count();
        let below = self.take_below(depth);
        if usage.total < self.least {
            self.kept -= below.iter().map(count).sum::<usize>();
            return;
        }
        let name = Escaped(path.file_name().unwrap_or_default().as_encoded_bytes()).to_string();
        if self.waiting.len() <= depth {
            self.waiting.resize_with(depth + 1, Vec::new);
        }
        self.waiting[depth].push(TreemapNode { name, usage, below });
        self.kept += 1;
        if self.kept > KEPT_MAX {
            self.keep_the_largest();
        }
    }

    /// Keeps half of `KEPT_MAX` nodes. If nodes of equal size lie across the border, none of them is kept.
    fn keep_the_largest(&mut self) {
        let mut totals = Vec::with_capacity(self.kept);
        self.waiting.iter().flatten().for_each(|node| node.totals(&mut totals));
        totals.sort_unstable_by_key(|total| std::cmp::Reverse(*total));
        let most = totals.get(KEPT_MAX / 2).copied().unwrap_or_default();
        self.least = self.least.max(most.saturating_add(1));
        self.waiting.iter_mut().for_each(|nodes| prune(nodes, most));
        self.kept = self.waiting.iter().flatten().map(count).sum();
    }

    /// Takes the nodes that wait for a directory of this depth. Deeper ones without a directory lost it to damage.
    fn take_below(&mut self, depth: usize) -> Vec<TreemapNode> {
        if self.waiting.len() <= depth + 1 {
            return Vec::new();
        }
        self.waiting.drain(depth + 1..).flatten().collect()
    }

    /// Ends the count: all nodes become the content of a directory called `name`.
    pub(super) fn finish(self, name: &str, usage: FileUsage) -> TreemapNode {
        let below = self.waiting.into_iter().flatten().collect();
        TreemapNode { name: name.to_owned(), usage, below }
    }
}

fn count(node: &TreemapNode) -> usize {
    1 + node.below.iter().map(count).sum::<usize>()
}

/// Keeps nodes with more than `most` bytes.
fn prune(nodes: &mut Vec<TreemapNode>, most: u64) {
    nodes.retain(|node| node.usage.total > most);
    nodes.iter_mut().for_each(|node| prune(&mut node.below, most));
}

impl TreemapNode {
    fn totals(&self, all: &mut Vec<u64>) {
        all.push(self.usage.total);
        self.below.iter().for_each(|node| node.totals(all));
    }

    /// Draws the treemap.
    pub(super) fn picture(&self, width: f64, height: f64) -> String {
        let mut picture = Picture::new(width, height, "space by directory");
        let area = Area { x: 0.0, y: 0.0, width, height };
        self.draw(&mut picture, area.inset(1.0), &self.name, 0);
        picture.finish()
    }

    fn draw(&self, picture: &mut Picture, area: Area, path: &str, depth: usize) {
        /// Height of a line of text, in pixels.
        const LINE: f64 = 15.0;
        let FileUsage { total, exclusive } = self.usage;
        let told = format!("{path}: {}, of which {} are its own", HumanSize(total), HumanSize(exclusive));
        picture.area(area, "shared", Some(&told));
        // The exclusive share, drawn from the bottom.
        let share = if total == 0 { 0.0 } else { exclusive as f64 / total as f64 };
        let own = area.height * share.clamp(0.0, 1.0);
        picture.area(Area { y: area.y + area.height - own, height: own, ..area }, "alone light", None);
        picture.area(area, "frame", None);
        let has_words = area.width > 40.0 && area.height > LINE + 2.0;
        if has_words {
            let words = format!("{} {}", self.name, HumanSize(total));
            picture.words(area.x + 4.0, area.y + LINE - 3.0, "", &clipped(&words, area.width - 8.0));
        }
        let inner = Area { y: area.y + LINE, height: area.height - LINE, ..area }.inset(3.0);
        if depth >= 24 || inner.width < 6.0 || inner.height < 6.0 {
            return;
        }
        let named: u64 = self.below.iter().map(|node| node.usage.total).fold(0, u64::saturating_add);
        let mut parts: Vec<(u64, Option<&TreemapNode>)> =
            self.below.iter().map(|node| (node.usage.total, Some(node))).collect();
        let rest = total.saturating_sub(named);
        if rest > 0 && !parts.is_empty() {
            parts.push((rest, None));
        }
        parts.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let weights: Vec<f64> = parts.iter().map(|(bytes, _)| *bytes as f64).collect();
        for (area, (bytes, node)) in squarified(inner, &weights).into_iter().zip(parts) {
            match node {
                Some(node) => {
                    let path = format!("{}/{}", path.trim_end_matches('/'), node.name);
                    node.draw(picture, area.inset(0.5), &path, depth + 1);
                }
                None => {
                    let told = format!("{path}: {} in smaller files and directories", HumanSize(bytes));
                    picture.area(area.inset(0.5), "empty", Some(&told));
                }
            }
        }
    }
}

/// Divides `whole` into areas whose sizes are proportional to `weights`, in descending order, and which are about as wide as high (the
/// layout of Bruls, Huizing and van Wijk, "Squarified Treemaps", 2000).
fn squarified(whole: Area, weights: &[f64]) -> Vec<Area> {
    let sum: f64 = weights.iter().sum();
    let mut areas = Vec::with_capacity(weights.len());
    if sum <= 0.0 {
        areas.resize(weights.len(), Area { width: 0.0, height: 0.0, ..whole });
        return areas;
    }
    let scale = whole.width * whole.height / sum;
    let (mut left, mut from) = (whole, 0);
    while from < weights.len() {
        let side = left.width.min(left.height);
        // A row takes another part as long as that does not make its worst aspect ratio worse.
        let mut to = from + 1;
        while to < weights.len()
            && worst(&weights[from..=to], side, scale) <= worst(&weights[from..to], side, scale)
        {
            to += 1;
        }
        let row = &weights[from..to];
        let taken = row.iter().sum::<f64>() * scale;
        let is_wide = left.width >= left.height;
        let depth = if side > 0.0 { taken / side } else { 0.0 };
        let mut along = 0.0;
        for weight in row {
            let length = if depth > 0.0 { weight * scale / depth } else { 0.0 };
            areas.push(match is_wide {
                true => Area { x: left.x, y: left.y + along, width: depth, height: length },
                false => Area { x: left.x + along, y: left.y, width: length, height: depth },
            });
            along += length;
        }
        match is_wide {
            true => (left.x, left.width) = (left.x + depth, (left.width - depth).max(0.0)),
            false => (left.y, left.height) = (left.y + depth, (left.height - depth).max(0.0)),
        }
        from = to;
    }
    areas
}

/// The worst aspect ratio in a row.
fn worst(row: &[f64], side: f64, scale: f64) -> f64 {
    let sum = row.iter().sum::<f64>() * scale;
    let (most, least) = row.iter().fold((0.0_f64, f64::MAX), |(most, least), weight| {
        (most.max(weight * scale), least.min(weight * scale))
    });
    if least <= 0.0 || sum <= 0.0 {
        return f64::MAX;
    }
    let side = side * side;
    (side * most / (sum * sum)).max(sum * sum / (side * least))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(total: u64) -> FileUsage {
        FileUsage { total, exclusive: total / 2 }
    }

    #[test]
    fn areas_fill_the_whole_as_their_weights() {
        let whole = Area { x: 3.0, y: 4.0, width: 60.0, height: 40.0 };
        let weights = [6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0];
        let areas = squarified(whole, &weights);
        for (area, weight) in areas.iter().zip(weights) {
            assert!((area.width * area.height - weight * 100.0).abs() < 1e-6, "{area:?}");
            assert!(area.x >= 3.0 - 1e-9 && area.x + area.width <= 63.0 + 1e-9, "{area:?}");
            assert!(area.y >= 4.0 - 1e-9 && area.y + area.height <= 44.0 + 1e-9, "{area:?}");
        }
        assert!(squarified(whole, &[0.0, 0.0]).iter().all(|area| area.width == 0.0));
        assert!(squarified(whole, &[]).is_empty());
    }

    #[test]
    fn what_is_small_is_in_the_directory_above() {
        let mut gathered = Gathered::new(10);
        for (path, total) in [("/a/b/c", 12), ("/a/b/d", 3), ("/a/b", 15), ("/a/e", 9), ("/a", 24), ("/f", 1)]
        {
            gathered.add(Path::new(path), usage(total));
        }
        let root = gathered.finish("/", usage(25));
        let [a] = &root.below[..] else { panic!("{root:?}") };
        assert_eq!((a.name.as_str(), a.usage.total, a.below.len()), ("a", 24, 1));
        assert_eq!((a.below[0].name.as_str(), a.below[0].below.len()), ("b", 1));
    }

    #[test]
    fn only_so_many_are_kept() {
        let mut gathered = Gathered::new(1);
        for number in 0..3 * KEPT_MAX as u64 {
            gathered.add(Path::new(&format!("/{number}")), usage(number + 1));
        }
        let root = gathered.finish("/", usage(u64::MAX));
        assert!(count(&root) <= KEPT_MAX + 1 && count(&root) > KEPT_MAX / 4);
        assert!(root.below.iter().any(|node| node.usage.total == 3 * KEPT_MAX as u64), "the largest");
        let mut gathered = Gathered::new(1);
        (0..3 * KEPT_MAX).for_each(|number| gathered.add(Path::new(&format!("/{number}")), usage(7)));
        assert!(count(&gathered.finish("/", usage(7))) <= KEPT_MAX + 1, "all alike");
    }
}
