//! Controls (ioctl(2)): our own, those for inode flags, and those of Linux' Btrfs.

use std::sync::Arc;

use creamery_fuse::protocol::IoctlFlags;
use creamery_fuse::{IoctlReply, IoctlRequest, NodeId, RequestContext, Result};

use super::Adapter;
use crate::asker;
use crate::control::SYNC;
use crate::defragment::{self, DEFRAGMENT, DEFRAGMENT_OF_LINUX, DefragmentRequest};
use crate::fiemap::{self, FIEMAP};
use crate::flags;
use crate::scrub::SCRUB;
use crate::subvolumes::{self, Subvolumes};
use crate::verity;

impl Adapter {
    /// State between controls about subvolumes.
    pub(crate) const fn subvolumes(&self) -> &Arc<Subvolumes> {
        &self.subvolumes
    }

    /// Answers a control.
    pub(super) fn answer_control(
        &self,
        context: &RequestContext<'_>,
        node: NodeId,
        ioctl: &IoctlRequest,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<IoctlReply> {
        let (is_dir, id) = (ioctl.flags.contains(IoctlFlags::DIR), self.nodes.inode(node));
        if ioctl.command == SYNC && is_dir {
            self.row.look(&self.fs);
        }
        let requests = self.session.get().map(|(_, requests)| &**requests);
        if let Some(answer) = self.control.answer(context, ioctl, input, output, (&self.fs, requests)) {
            return answer;
        }
        let server = self.server();
        let is_interrupted = || asker::gives_up(context);
        if let Some(what) = subvolumes::SubvolumeControl::of(ioctl.command).filter(|_| is_dir) {
            let asked_by = (context.pid, &is_interrupted as _);
            return self.control.page(input, output, || server.answer(what, asked_by, id, input));
        }
        if ioctl.command == SCRUB && is_dir {
            return self.control.page(input, output, || self.scrubbing.answer(context.pid, input));
        }
        if ioctl.command == FIEMAP && !is_dir {
            let file = self.handles.get(ioctl.handle)?;
            return self.control.page(input, output, || fiemap::answer(&file, input));
        }
        if ioctl.command == verity::MEASURE && !is_dir {
            return verity::answer(&*self.handles.get(ioctl.handle)?, input, output);
        }
        if [DEFRAGMENT, DEFRAGMENT_OF_LINUX].contains(&ioctl.command) && !is_dir {
            let file = self.handles.get(ioctl.handle)?;
            let asked = DefragmentRequest {
                fs: &self.fs,
                id,
                file: &file,
                thread: context.pid,
                owner: self.owner,
                row: &self.row,
                number: self.nodes.number(id)?,
                is_interrupted: &is_interrupted,
            };
            return match ioctl.command {
                DEFRAGMENT => self.control.page(input, output, || defragment::answer(&asked, input)),
                _ => defragment::answer_of_linux(&asked, input),
            };
        }
        if let Some(answer) = server.answer_of_linux(ioctl.command, context.pid, id, input, output) {
            return answer;
        }
        let (reply, changed) = flags::answer(&self.fs, id, ioctl.command, input, output)?;
        if changed {
            self.attributes_moved(node); // the change time
        }
        Ok(reply)
    }
}
