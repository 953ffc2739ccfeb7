//! Who asks, where a request names no more than the thread that waits for its answer. As long as it waits its number is nobody
//! else's, so what proc(5) says of it is so.

use creamery_fs::Writer;
use creamery_fuse::RequestContext;

/// `CAP_FSETID`: who has it leaves set-user-id and set-group-id of what it writes.
const CAP_FSETID: u32 = 4;
/// What every signal that ends a process becomes in each of its threads (signal(7)).
const SIGKILL: u32 = 9;

/// Whether the caller of a request waits for nothing but to be let go. As on Linux, a caller that handles its signals waits on.
pub(crate) fn gives_up(ctx: &RequestContext<'_>) -> bool {
    ctx.is_interrupted() && Asker::of(ctx.pid).is_killed()
}

/// A thread that waits.
pub(crate) struct Asker {
    /// What proc(5) says of it; nothing of a thread that is not seen from here.
    status: String,
    /// Whether its capabilities count here.
    is_at_home: bool,
}

impl Asker {
    pub(crate) fn of(thread: u32) -> Self {
        let namespace = |whose: &str| std::fs::read_link(format!("/proc/{whose}/ns/user")).ok();
        let there = namespace(&thread.to_string());
        Self {
            status: std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default(),
            is_at_home: there.is_some() && there == namespace("self"),
        }
    }

    /// The words behind `name`.
    fn words(&self, name: &str) -> impl Iterator<Item = &str> {
        let line = self.status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().split_whitespace()
    }

    /// The effective user.
    pub(crate) fn user(&self) -> Option<u32> {
        self.words("Uid:").nth(1)?.parse().ok()
    }

    /// The user and the group that files are made and judged by.
    pub(crate) fn fs_ids(&self) -> Option<(u32, u32)> {
        let last = |name| self.words(name).nth(3).and_then(|word| word.parse().ok());
        Some((last("Uid:")?, last("Gid:")?))
    }

    /// The bits that it takes from the modes of new files.
    pub(crate) fn umask(&self) -> u32 {
        let word = self.words("Umask:").next();
        word.and_then(|word| u32::from_str_radix(word, 8).ok()).unwrap_or(0o077)
    }

    /// Whether it is being killed: it waits for nothing but to be let go.
    pub(crate) fn is_killed(&self) -> bool {
        let pending = self.words("SigPnd:").next().and_then(|word| u64::from_str_radix(word, 16).ok());
        pending.is_some_and(|bits| bits & 1 << (SIGKILL - 1) != 0)
    }

    /// Whether it is root or the mounter, who may do here what elsewhere root may.
    pub(crate) fn administrates(&self) -> bool {
        self.user().is_some_and(|uid| uid == 0 || uid == rustix::process::geteuid().as_raw())
    }

    pub(crate) fn is_in_group(&self, group: u32) -> bool {
        let own = self.words("Gid:").nth(1).into_iter();
        own.chain(self.words("Groups:")).any(|word| word.parse() == Ok(group))
    }

    /// What it is to a file of `group` that it writes to.
    pub(crate) fn as_writer(&self, group: u32) -> Writer {
        match () {
            () if self.leaves_privileges() => Writer::Privileged,
            () if self.is_in_group(group) => Writer::OfTheGroup,
            () => Writer::Stranger,
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
        let of = |status: &str| Asker { status: status.to_owned(), is_at_home: true };
        assert!(of("SigQ:\t0/7\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n").is_killed());
        for other in ["SigPnd:\t0000000000002000\nShdPnd:\t0000000000000100\n", ""] {
            assert!(!of(other).is_killed());
        }
        assert!(!Asker::of(std::process::id()).is_killed());
    }

    #[test]
    fn capabilities_count_at_home_only() {
        let of = |status: &str, is_at_home| Asker { status: status.to_owned(), is_at_home };
        let root = "Uid:\t0\t0\t0\t0\nGid:\t7\t8\t7\t7\nGroups:\t9 10 \nCapEff:\t000001ffffffffff\n";
        assert!(of(root, true).leaves_privileges() && !of(root, false).leaves_privileges());
        assert!(!of("CapEff:\t00000000a80425eb\n", true).leaves_privileges());
        let groups = [7, 8, 9, 10].map(|group| of(root, true).is_in_group(group));
        assert_eq!(groups, [false, true, true, true]);
    }
}
