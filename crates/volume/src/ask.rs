//! Requests to several devices at once.

use creamery_base::{Result, Wait};
use creamery_device::{Completion, Pending, Reply, Request};

use crate::members::Member;
use crate::volume::Volume;

/// Requests, grouped by device.
#[derive(Default)]
pub(crate) struct ByDevice<'v> {
    devices: Vec<(&'v Member, Vec<(Request, Completion)>)>,
}

impl<'v> ByDevice<'v> {
    /// Adds a request. Its device must be the last one added or a new one.
    pub(crate) fn add(&mut self, member: &'v Member, request: Request, done: Completion) {
        match self.devices.last_mut() {
            Some((last, requests)) if last.dev == member.dev => requests.push((request, done)),
            _ => self.devices.push((member, vec![(request, done)])),
        }
    }

    /// Starts all requests, for a caller that does not wait for their answers. Without `wait` this thread runs none of them itself.
    pub(crate) fn submit(self, wait: Wait) {
        for (member, requests) in self.devices {
            let device = &member.device;
            requests.into_iter().for_each(|(request, done)| match wait {
                Wait::Yes => device.submit(request, done),
                Wait::No => device.submit_queued(request, done),
            });
        }
    }

    /// Runs all requests for a caller that waits for them: all other devices get theirs before this thread runs the last device's.
    pub(crate) fn carry_out(mut self) {
        let last = self.devices.pop();
        self.submit(Wait::Yes);
        if let Some((member, requests)) = last {
            member.device.carry_out(requests);
        }
    }
}

impl Volume {
    /// Whether all devices are there, and each soon starts a new request without help of the thread that submits it.
    #[must_use]
    pub fn takes_at_once(&self) -> bool {
        let members = self.members();
        !members.are_some_missing() && members.all().iter().all(|member| member.device.has_room())
    }
}

/// Sends requests and waits for all answers, which come in the order of the requests. Requests to one device must follow one another.
pub(crate) fn ask_all<'v>(
    requests: impl IntoIterator<Item = (&'v Member, Request)>,
) -> Vec<(&'v Member, Result<Reply>)> {
    let (mut pending, mut by_device) = (Vec::new(), ByDevice::default());
    for (member, request) in requests {
        let (answer, done) = Pending::with_completion();
        pending.push((member, answer));
        by_device.add(member, request, done);
    }
    by_device.carry_out();
    pending.into_iter().map(|(member, answer)| (member, answer.wait())).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use creamery_base::{DevId, Uuid};
    use creamery_device::{BlockDevice, DeviceId};

    use super::*;
    use crate::members::MemberPart;

    type Kept = Arc<Mutex<Vec<(u64, Request, Completion)>>>;

    /// Devices that answer once this many requests have come to all of them, the last one first.
    struct HoldsAnswers {
        number: u64,
        count: usize,
        kept: Kept,
    }

    impl BlockDevice for HoldsAnswers {
        fn submit(&self, request: Request, done: Completion) {
            let mut kept = self.kept.lock().unwrap();
            kept.push((self.number, request, done));
            if kept.len() == self.count {
                let kept: Vec<_> = kept.drain(..).collect();
                for (number, request, done) in kept.into_iter().rev() {
                    done(match request {
                        Request::Read { mut buffer, .. } => {
                            buffer.fill(u8::try_from(number).unwrap());
                            Ok(Reply::Read(buffer))
                        }
                        _ => Ok(Reply::Done),
                    });
                }
            }
        }

        fn len(&self) -> u64 {
            1 << 20
        }

        fn id(&self) -> DeviceId {
            DeviceId::unique()
        }

        fn describe(&self) -> String {
            self.number.to_string()
        }
    }

    fn members(count: u64, requests: usize) -> Vec<Member> {
        let kept = Kept::default();
        let member = |number| Member {
            dev: DevId::new(number),
            uuid: Uuid::from_u128(u128::from(number)),
            device: Arc::new(HoldsAnswers { number, count: requests, kept: Arc::clone(&kept) }),
            counted: 1 << 20,
            part: MemberPart::Current,
            metadata_uuid: Uuid::nil(),
            failed: Arc::default(),
            errors: Arc::default(),
            is_rewritten: Arc::default(),
        };
        (1..=count).map(member).collect()
    }

    #[test]
    fn all_devices_flush_before_any_is_waited_for() {
        let members = members(4, 4);
        let answers = ask_all(members.iter().map(|member| (member, Request::Flush)));
        assert!(answers.iter().all(|(_, answer)| matches!(answer, Ok(Reply::Done))));
    }

    #[test]
    fn answers_come_in_the_order_of_the_requests() {
        let members = members(3, 6);
        let read = || Request::Read { offset: 0, buffer: creamery_device::AlignedBuffer::zeroed(8) };
        let requests = members.iter().flat_map(|member| [(member, read()), (member, read())]);
        let answers = ask_all(requests);
        let told: Vec<u8> = answers
            .into_iter()
            .map(|(member, answer)| {
                let Ok(Reply::Read(buffer)) = answer else { panic!("it is read") };
                assert_eq!(u64::from(buffer[0]), member.dev.get());
                buffer[0]
            })
            .collect();
        assert_eq!(told, [1, 1, 2, 2, 3, 3]);
    }
}
