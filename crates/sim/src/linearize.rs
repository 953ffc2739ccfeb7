//! Checks whether some sequential order of calls explains the answers that several threads got.
//!
//! A history has for each call its begin, its end and its answer, by a clock that all threads share. It is linearizable if there is an
//! order of the calls in which each call gets its answer from the model, and no call comes before one that ended before it began. The
//! search is that of Wing and Gong: apply any call that may be next, go on, and go back at a dead end. A position (the calls done and the
//! state of the model) that led to a dead end is not tried again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use creamery_base::{ErrorKind, InodeId};
use creamery_fs::{FileType, RenameMode};

use crate::model::{Model, ROOT};
use crate::operation::{Operation, Outcome};

/// The request of a thread: names lie in one of several permanent directories.
///
/// ```
/// use creamery_sim::Ask;
/// assert_ne!(Ask::Unlink(0, b"a".to_vec()), Ask::Rmdir(0, b"a".to_vec()));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Makes a file or directory.
    Make(usize, Vec<u8>, FileType),
    /// Removes a name of a file that is no directory.
    Unlink(usize, Vec<u8>),
    /// Removes an empty directory.
    Rmdir(usize, Vec<u8>),
    /// Gives a second name to an inode that an earlier call returned.
    Link(InodeId, usize, Vec<u8>),
    /// Renames a file.
    Rename(usize, Vec<u8>, usize, Vec<u8>, RenameMode),
    /// Looks up a name.
    Lookup(usize, Vec<u8>),
}

/// The answer of a call: the inode that it made or found.
pub type CallAnswer = Result<Option<InodeId>, ErrorKind>;

/// One call of a history.
///
/// ```
/// use creamery_sim::{Ask, Call};
/// let call = Call { thread: 0, ask: Ask::Lookup(0, b"a".to_vec()), begun: 1, ended: 2, told: Ok(None) };
/// assert!(call.begun < call.ended);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The calling thread.
    pub thread: usize,
    /// The request.
    pub ask: Ask,
    /// The time of its begin.
    pub begun: u64,
    /// The time of its end.
    pub ended: u64,
    /// The answer.
    pub told: CallAnswer,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let ask = match &self.ask {
            Ask::Make(dir, name, kind) => format!("make {kind:?} {dir}/{}", text(name)),
            Ask::Unlink(dir, name) => format!("unlink {dir}/{}", text(name)),
            Ask::Rmdir(dir, name) => format!("rmdir {dir}/{}", text(name)),
            Ask::Link(target, dir, name) => format!("link {target} to {dir}/{}", text(name)),
            Ask::Rename(from, name, to, new_name, mode) => {
                format!("rename {from}/{} to {to}/{} ({mode:?})", text(name), text(new_name))
            }
            Ask::Lookup(dir, name) => format!("lookup {dir}/{}", text(name)),
        };
        write!(f, "{:>3} to {:>3}, thread {}: {ask}: ", self.begun, self.ended, self.thread)?;
        match &self.told {
            Ok(Some(id)) => write!(f, "{id}"),
            Ok(None) => f.write_str("done"),
            Err(kind) => write!(f, "{kind:?}"),
        }
    }
}

/// The model, and the inode for each of its numbers.
#[derive(Clone)]
struct LinearState {
    model: Model,
    ids: BTreeMap<u64, InodeId>,
    dirs: Vec<u64>,
    /// All directories that were made, also removed ones.
    made: BTreeSet<InodeId>,
}

impl LinearState {
    fn new(dirs: usize) -> Self {
        let mut model = Model::new();
        let make = |number: usize| Operation::Create {
            dir: ROOT,
            name: format!("dir{number}").into_bytes(),
            kind: FileType::Directory,
            mode: 0o755,
        };
        let dirs = (0..dirs)
            .map(|number| match model.apply(&make(number)) {
                Ok(Outcome::Made(id)) => id,
                other => unreachable!("a directory in an empty model: {other:?}"),
            })
            .collect();
        Self { model, ids: BTreeMap::new(), dirs, made: BTreeSet::new() }
    }

    /// The state after a call, if its answer fits this state.
    fn after(&self, call: &Call) -> Option<Self> {
        let operation = match &call.ask {
            Ask::Make(dir, name, kind) => {
                Operation::Create { dir: self.dirs[*dir], name: name.clone(), kind: *kind, mode: 0o644 }
            }
            Ask::Unlink(dir, name) => Operation::Unlink { dir: self.dirs[*dir], name: name.clone() },
            Ask::Rmdir(dir, name) => Operation::Rmdir { dir: self.dirs[*dir], name: name.clone() },
            Ask::Link(target, dir, name) => {
                let target = self.ids.iter().find(|(_, id)| *id == target).map(|(number, _)| *number)?;
                Operation::Link { target, dir: self.dirs[*dir], name: name.clone() }
            }
            Ask::Rename(from, name, to, new_name, mode) => Operation::Rename {
                from: self.dirs[*from],
                name: name.clone(),
                to: self.dirs[*to],
                new_name: new_name.clone(),
                mode: *mode,
            },
            Ask::Lookup(dir, name) => {
                let found = self.model.child(self.dirs[*dir], name).map(|number| self.ids[&number]);
                return (call.told == found.map(Some).ok_or(ErrorKind::NotFound)).then(|| self.clone());
            }
        };
        let mut next = self.clone();
        match (next.model.apply(&operation), &call.told) {
            (Ok(Outcome::Made(number)), Ok(Some(id))) => {
                next.ids.insert(number, *id);
                if let Ask::Make(.., FileType::Directory) = call.ask {
                    next.made.insert(*id);
                }
                Some(next)
            }
            (Ok(Outcome::Done), Ok(None)) => Some(next),
            (Err(wanted), Err(found)) if wanted == *found => Some(next),
            // An inode without a name is about to go: whether it still exists depends on the moment.
            (Err(wanted), Err(found)) if is_gone(wanted) && self.may_tell(call, *found) => Some(next),
            _ => None,
        }
    }

    /// Whether a link to an inode that is gone may fail with this error: any of the errors that apply may be reported.
    fn may_tell(&self, call: &Call, found: ErrorKind) -> bool {
        let Ask::Link(target, dir, name) = &call.ask else { return false };
        match found {
            // An inode without a name is about to go: whether it still exists depends on the moment.
            ErrorKind::NotFound | ErrorKind::Stale => true,
            // Linking a directory is never allowed, and neither is linking to an existing name.
            ErrorKind::PermissionDenied => self.made.contains(target),
            ErrorKind::AlreadyExists => self.model.child(self.dirs[*dir], name).is_some(),
            _ => false,
        }
    }

    /// A hash that is equal for equal states, regardless of the order in which inodes were made.
    fn hash(&self, done: &[usize]) -> u64 {
        let mut hasher = DefaultHasher::new();
        done.hash(&mut hasher);
        let firsts = self.model.paths();
        let named: BTreeMap<&Vec<u8>, Option<&InodeId>> =
            firsts.iter().map(|(number, path)| (path, self.ids.get(number))).collect();
        named.hash(&mut hasher);
        for (path, entry) in self.model.snapshot().entries {
            (path, entry.nlink, entry.first).hash(&mut hasher);
        }
        hasher.finish()
    }
}

const fn is_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Stale)
}

/// Whether some order of these calls, which keeps the order of each thread, explains all answers. The `dirs` directories are empty at
/// first.
#[must_use]
pub fn linearizable(dirs: usize, threads: &[Vec<Call>]) -> bool {
    let mut dead = HashSet::new();
    explain(&LinearState::new(dirs), threads, &mut vec![0; threads.len()], &mut dead)
}

fn explain(
    state: &LinearState,
    threads: &[Vec<Call>],
    done: &mut Vec<usize>,
    dead: &mut HashSet<u64>,
) -> bool {
    let next = |done: &[usize]| -> Vec<(usize, Call)> {
        let waiting = threads.iter().zip(done).enumerate();
        waiting.filter_map(|(thread, (calls, at))| Some((thread, calls.get(*at)?.clone()))).collect()
    };
    let waiting = next(done);
    let Some(first_end) = waiting.iter().map(|(_, call)| call.ended).min() else { return true };
    let here = state.hash(done);
    if dead.contains(&here) {
        return false;
    }
    for (thread, call) in waiting.iter().filter(|(_, call)| call.begun < first_end) {
        if let Some(after) = state.after(call) {
            done[*thread] += 1;
            if explain(&after, threads, done, dead) {
                return true;
            }
            done[*thread] -= 1;
        }
    }
    dead.insert(here);
    false
}

#[cfg(test)]
mod tests {
    use creamery_base::{ObjectId, TreeId};

    use super::*;

    fn id(number: u64) -> InodeId {
        InodeId::new(TreeId::FS, ObjectId::new(300 + number))
    }

    fn call(thread: usize, (begun, ended): (u64, u64), ask: Ask, told: CallAnswer) -> Call {
        Call { thread, ask, begun, ended, told }
    }

    fn make(name: &[u8]) -> Ask {
        Ask::Make(0, name.to_vec(), FileType::File)
    }

    #[test]
    fn two_makers_of_one_name_cannot_both_succeed() {
        let both = |second: CallAnswer| {
            let a = call(0, (1, 4), make(b"a"), Ok(Some(id(1))));
            let b = call(1, (2, 3), make(b"a"), second);
            linearizable(1, &[vec![a], vec![b]])
        };
        assert!(both(Err(ErrorKind::AlreadyExists)));
        assert!(!both(Ok(Some(id(2)))));
    }

    #[test]
    fn what_was_finished_before_is_seen() {
        let look = |span, told| {
            let a = call(0, (1, 2), make(b"a"), Ok(Some(id(1))));
            let b = call(1, span, Ask::Lookup(0, b"a".to_vec()), told);
            linearizable(1, &[vec![a], vec![b]])
        };
        assert!(look((3, 4), Ok(Some(id(1)))));
        assert!(!look((3, 4), Err(ErrorKind::NotFound)), "it began after the making had ended");
        assert!(look((1, 4), Err(ErrorKind::NotFound)), "they overlap");
        assert!(!look((3, 4), Ok(Some(id(2)))));
    }

    #[test]
    fn a_name_is_never_in_two_places_nor_in_none() {
        let history = |seen: [CallAnswer; 2]| {
            let there = Ask::Rename(0, b"a".to_vec(), 1, b"a".to_vec(), RenameMode::Replace);
            let mover = vec![call(0, (1, 2), make(b"a"), Ok(Some(id(1)))), call(0, (3, 10), there, Ok(None))];
            let [first, second] = seen;
            let watcher = vec![
                call(1, (4, 5), Ask::Lookup(1, b"a".to_vec()), first),
                call(1, (6, 7), Ask::Lookup(0, b"a".to_vec()), second),
            ];
            linearizable(2, &[mover, watcher])
        };
        let (here, gone) = (Ok(Some(id(1))), Err(ErrorKind::NotFound));
        assert!(history([here, gone]));
        assert!(history([gone, here]));
        assert!(!history([here, here]), "in the old place after it was in the new one");
    }
}
