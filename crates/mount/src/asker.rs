//! The sender of a request, which names only the thread that waits for its answer. While the thread waits, its number stays
//! its own, so proc(5) describes that thread: after a server has read a request, the kernel lets its thread end only with the
//! answer. A thread outside of the mounter's pid namespace has number 0, and no rights.
//!
//! # Invariants
//! - ASKER-1: a user number gives the right to administrate only to the mounter, unless that is root. Root has it by `CAP_SYS_ADMIN`, and
//!   both have it only in the user namespace of the server, which is the mount's: root of a container is not root here.
//!   Shown by `a_number_of_a_user_is_no_right_of_root`, `a_thread_of_another_user_namespace_is_not_at_home`.

use creamery_fs::WritingUser;
use creamery_fuse::RequestContext;

/// `CAP_SYS_ADMIN`: its holder may administrate filesystems.
const CAP_SYS_ADMIN: u32 = 21;
/// `CAP_FSETID`: the holder's writes leave set-user-id and set-group-id in place.
const CAP_FSETID: u32 = 4;
/// The signal that each thread of a process gets when a signal kills the process (signal(7)).
const SIGKILL: u32 = 9;

/// Whether the caller of a request is being killed. As on Linux, a caller that handles its signals waits on.
pub(crate) fn gives_up(ctx: &RequestContext<'_>) -> bool {
    ctx.is_interrupted() && Asker::of(ctx.pid).is_killed()
}

/// A thread that waits for an answer.
pub(crate) struct Asker {
    /// The number of the thread.
    thread: u32,
    /// Its status in proc(5); empty for a thread that is not visible here.
    status: String,
    /// Whether its capabilities count here.
    is_at_home: bool,
}

impl Asker {
    pub(crate) fn of(thread: u32) -> Self {
        let status =
            |whose: &str| std::fs::read_to_string(format!("/proc/{whose}/status")).unwrap_or_default();
        let whose = thread.to_string();
        Self { thread, status: status(&whose), is_at_home: is_at_home(&whose) }
    }

    /// The number of the thread.
    pub(crate) const fn thread(&self) -> u32 {
        self.thread
    }

    /// The number of its process; `None` for a thread that is not visible here.
    pub(crate) fn process(&self) -> Option<u32> {
        self.words("Tgid:").next()?.parse().ok()
    }

    /// The words behind `name`.
    fn words(&self, name: &str) -> impl Iterator<Item = &str> {
        let line = self.status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().split_whitespace()
    }

    /// The effective user number.
    pub(crate) fn user(&self) -> Option<u32> {
        self.words("Uid:").nth(1)?.parse().ok()
    }

    /// The user and the group that own its new files and decide its permissions.
    pub(crate) fn fs_ids(&self) -> Option<(u32, u32)> {
        let last = |name| self.words(name).nth(3).and_then(|word| word.parse().ok());
        Some((last("Uid:")?, last("Gid:")?))
    }

    /// The bits that are removed from the modes of its new files.
    pub(crate) fn umask(&self) -> u32 {
        let word = self.words("Umask:").next();
        word.and_then(|word| u32::from_str_radix(word, 8).ok()).unwrap_or(0o077)
    }

    /// Whether it is being killed: it only waits for the answer, to end.
    pub(crate) fn is_killed(&self) -> bool {
        let pending = self.words("SigPnd:").next().and_then(|word| u64::from_str_radix(word, 16).ok());
        pending.is_some_and(|bits| bits & 1 << (SIGKILL - 1) != 0)
    }

    /// Whether it has an administrator's rights here (ASKER-1).
    pub(crate) fn administrates(&self) -> bool {
        self.administrates_for(rustix::process::geteuid().as_raw())
    }

    /// Whether it has an administrator's rights on a mount of the user `mounter`.
    pub(crate) fn administrates_for(&self, mounter: u32) -> bool {
        let is_mounter = mounter != 0 && self.user() == Some(mounter);
        self.has(CAP_SYS_ADMIN) || self.is_at_home && is_mounter
    }

    pub(crate) fn is_in_group(&self, group: u32) -> bool {
        let own = self.words("Gid:").nth(1).into_iter();
        own.chain(self.words("Groups:")).any(|word| word.parse() == Ok(group))
    }

    /// Its relation to a file of `group` that it writes to.
    pub(crate) fn as_writer(&self, group: u32) -> WritingUser {
        match () {
            () if self.leaves_privileges() => WritingUser::Privileged,
            () if self.is_in_group(group) => WritingUser::OfTheGroup,
            () => WritingUser::Stranger,
        }
    }

    fn leaves_privileges(&self) -> bool {
        self.has(CAP_FSETID)
    }

    /// Whether it has a capability (capabilities(7)) that counts here.
    pub(crate) fn has(&self, capability: u32) -> bool {
        let capabilities = self.words("CapEff:").next().and_then(|word| u64::from_str_radix(word, 16).ok());
        self.is_at_home && capabilities.is_some_and(|bits| bits & 1 << capability != 0)
    }
}

/// Whether a thread is in the user namespace of this process.
fn is_at_home(whose: &str) -> bool {
    let namespace = |whose: &str| std::fs::read_link(format!("/proc/{whose}/ns/user")).ok();
    if let Some(there) = namespace(whose) {
        return Some(there) == namespace("self");
    }
    // An unprivileged server may not read the namespaces of other users. In another user namespace numbers mean other users, and a
    // container, where they may mean the same users, has its own pid namespace.
    let read = |whose: &str, name: &str| std::fs::read_to_string(format!("/proc/{whose}/{name}")).ok();
    let users = |whose: &str| read(whose, "uid_map").filter(|map| !map.is_empty());
    let depth = |whose: &str| {
        let status = read(whose, "status")?;
        Some(status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().count())
    };
    users(whose).is_some() && users(whose) == users("self") && depth(whose) == depth("self")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_is_known_and_no_thread_is_nobody() {
        let this = Asker::of(std::process::id());
        assert_eq!(this.user(), Some(rustix::process::geteuid().as_raw()));
        assert!(this.is_in_group(rustix::process::getegid().as_raw()) && !this.is_in_group(u32::MAX));
        for nobody in [0, u32::MAX].map(Asker::of) {
            assert!(nobody.user().is_none() && !nobody.is_in_group(0) && !nobody.leaves_privileges());
        }
    }

    #[test]
    fn who_is_killed_is_known_by_what_is_pending() {
        let of = |status: &str| Asker { thread: 1, status: status.to_owned(), is_at_home: true };
        assert!(of("SigQ:\t0/7\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n").is_killed());
        for other in ["SigPnd:\t0000000000002000\nShdPnd:\t0000000000000100\n", ""] {
            assert!(!of(other).is_killed());
        }
        assert!(!Asker::of(std::process::id()).is_killed());
    }

    #[test]
    fn capabilities_count_at_home_only() {
        let of = |status: &str, is_at_home| Asker { thread: 1, status: status.to_owned(), is_at_home };
        let root = "Uid:\t0\t0\t0\t0\nGid:\t7\t8\t7\t7\nGroups:\t9 10 \nCapEff:\t000001ffffffffff\n";
        assert!(of(root, true).leaves_privileges() && !of(root, false).leaves_privileges());
        assert!(!of("CapEff:\t00000000a80425eb\n", true).leaves_privileges());
        let groups = [7, 8, 9, 10].map(|group| of(root, true).is_in_group(group));
        assert_eq!(groups, [false, true, true, true]);
    }

    #[test]
    fn a_number_of_a_user_is_no_right_of_root() {
        let of = |uid: u32, capabilities: &str, is_at_home| {
            let status = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities}\n");
            Asker { thread: 1, status, is_at_home }
        };
        let (all, docker, none) = ("000001ffffffffff", "00000000a80425fb", "0000000000000000");
        let rows = [
            ((0, all, true), [true, true]),
            ((0, all, false), [false, false]),
            ((0, docker, true), [false, false]),
            ((0, none, true), [false, false]),
            ((7, none, true), [false, true]),
            ((7, none, false), [false, false]),
            ((8, none, true), [false, false]),
            ((8, all, true), [true, true]),
        ];
        for ((uid, capabilities, is_at_home), want) in rows {
            let asker = of(uid, capabilities, is_at_home);
            let found = [0, 7].map(|mounter| asker.administrates_for(mounter));
            assert_eq!(found, want, "ASKER-1: {uid} {capabilities} {is_at_home}");
        }
    }

    #[test]
    fn a_thread_of_another_user_namespace_is_not_at_home() {
        assert!(is_at_home("self") && is_at_home(&std::process::id().to_string()));
        assert!(!is_at_home("0") && !is_at_home(&u32::MAX.to_string()));
    }
}
