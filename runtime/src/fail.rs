//! Points at which a rank can be made to die or stop, so that tests meet it there and not by luck.
//!
//! `RINGCCL_FAIL_POINT=op.sent@3:kill` kills the process when it has sent for the third time. Without the
//! variable a point costs one comparison.

use nix::sys::signal::{Signal, raise};

/// The points, in the order in which a rank passes them.
pub(crate) const POINTS: [&str; 14] = [
    INIT_JOIN,
    INIT_WELCOME,
    INIT_ATTACHED,
    INIT_BARRIER,
    INIT_DONE,
    OP_BEGIN,
    OP_CALLED,
    OP_SENT,
    OP_BLOCKED,
    OP_DONE,
    FINALIZE_BEGIN,
    FINALIZE_MET,
    FINALIZE_REPORTED,
    FINALIZE_LEFT,
];

/// Before the rendezvous is asked.
pub(crate) const INIT_JOIN: &str = "init.join";
/// After the rendezvous has answered, before there is a segment.
pub(crate) const INIT_WELCOME: &str = "init.welcome";
/// After the segment was made, or attached to.
pub(crate) const INIT_ATTACHED: &str = "init.attached";
/// Before waiting for all to attach.
pub(crate) const INIT_BARRIER: &str = "init.barrier";
/// After all have attached.
pub(crate) const INIT_DONE: &str = "init.done";
/// Before an operation is counted.
pub(crate) const OP_BEGIN: &str = "op.begin";
/// When its plan is made, before its first message.
pub(crate) const OP_CALLED: &str = "op.called";
/// After what could be sent at once was sent.
pub(crate) const OP_SENT: &str = "op.sent";
/// When a wait gets long, before the first sleep.
pub(crate) const OP_BLOCKED: &str = "op.blocked";
/// After the last message, before the operation counts as finished.
pub(crate) const OP_DONE: &str = "op.done";
/// Before the barrier of `finalize`.
pub(crate) const FINALIZE_BEGIN: &str = "finalize.begin";
/// After that barrier.
pub(crate) const FINALIZE_MET: &str = "finalize.met";
/// After the report, before leaving.
pub(crate) const FINALIZE_REPORTED: &str = "finalize.reported";
/// After leaving.
pub(crate) const FINALIZE_LEFT: &str = "finalize.left";

/// What happens at a point, and when.
#[derive(Debug)]
pub(crate) struct FailPoint {
    point: &'static str,
    /// Times that the point is still to be passed before.
    left: u64,
    signal: Signal,
}

impl FailPoint {
    /// Reads `POINT[@TIME]:kill|stop`; `Err` says what would be right.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (place, action) = text.split_once(':')?;
            let (name, time) = place.split_once('@').unwrap_or((place, "1"));
            let time: u64 = time.parse().ok().filter(|time| *time > 0)?;
            let point = POINTS.into_iter().find(|point| *point == name)?;
            let signal = match action {
                "kill" => Signal::SIGKILL,
                "stop" => Signal::SIGSTOP,
                _ => return None,
            };
            Some(Self { point, left: time - 1, signal })
        };
        parsed().ok_or_else(|| format!("POINT[@TIME]:kill|stop with a POINT of {}", POINTS.join(", ")))
    }

    #[cold]
    fn pass(&mut self, point: &str) {
        if self.point != point {
            return;
        }
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => {
                self.left = u64::MAX;
                // A process can always signal itself; if not, the test that asked for it fails.
                let _ = raise(self.signal);
            }
        }
    }
}

/// Passes a point.
#[inline]
pub(crate) fn at(fail: &mut Option<FailPoint>, point: &'static str) {
    if let Some(fail) = fail {
        fail.pass(point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Good texts are taken apart, and bad ones are answered by all that would be right.
    #[test]
    fn texts_are_checked() {
        let point = FailPoint::parse("op.sent@3:stop").unwrap();
        assert_eq!((point.point, point.left, point.signal), (OP_SENT, 2, Signal::SIGSTOP));
        assert_eq!(FailPoint::parse("init.join:kill").unwrap().left, 0);
        for bad in
            ["", "op.sent", "op.sent:", "op.sent@0:kill", "op.send:kill", "op.sent@x:kill", "op.sent:die"]
        {
            let text = FailPoint::parse(bad).unwrap_err();
            assert!(text.contains("finalize.left") && text.contains("kill|stop"), "{bad}: {text}");
        }
    }
}
