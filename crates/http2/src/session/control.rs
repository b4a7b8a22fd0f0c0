//! Frames that are not requests and have no content.

use alloc::vec::Vec;

use super::{Outcome, Phase, Session};
use crate::frame::{
    self, ErrorCode, FrameHeader, PAYLOAD_BYTES_MAX, SETTING_BYTES, SETTINGS_MAX, U31_MAX, check_window, flag, kind,
    setting,
};
use crate::limits::ExceededLimit;
use crate::priority::Priority;
use crate::streams::Work;

impl<B> Session<B> {
    /// A frame that is not a request and has no content.
    pub(super) fn take_control(&mut self, header: FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Outcome<()> {
        if header.kind != kind::RST_STREAM {
            self.budgets.take_control()?;
        }
        header.check_control()?;
        let number = frame::u32_at_start(payload) & U31_MAX;
        match header.kind {
            kind::SETTINGS if !header.has(flag::ACK) => self.take_settings(payload, out),
            kind::WINDOW_UPDATE => self.take_window_update(header.stream, number, out),
            kind::RST_STREAM => self.take_reset(header.stream),
            kind::PING if !header.has(flag::ACK) => {
                frame::put_ping_ack(payload, out);
                Ok(())
            }
            kind::GOAWAY => {
                self.is_client_leaving = true;
                Ok(())
            }
            // RFC 7540 §5.3.1.
            kind::PRIORITY if number == header.stream => Err(ErrorCode::ProtocolError.into()),
            // RFC 9218 §7.1.
            kind::PRIORITY_UPDATE if number == 0 => Err(ErrorCode::ProtocolError.into()),
            kind::PRIORITY_UPDATE => {
                let priority = Priority::parse(&payload[4..]);
                if let Some(stream) = self.streams.find_mut(number) {
                    stream.priority = priority;
                } else if self.is_idle(number) {
                    self.early_priorities.put(number, priority);
                }
                Ok(())
            }
            // RFC 9113 §8.4: clients push nothing.
            kind::PUSH_PROMISE => Err(ErrorCode::ProtocolError.into()),
            // RFC 9113 §5.5: unknown types are ignored.
            _ => Ok(()),
        }
    }

    fn take_settings(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Outcome<()> {
        if payload.len() > SETTINGS_MAX * SETTING_BYTES {
            return Err(ExceededLimit::ControlFrames.into());
        }
        let mut old_priorities = self.old_priorities;
        for entry in payload.chunks_exact(SETTING_BYTES) {
            let value = frame::u32_at_start(&entry[2..]);
            match u16::from_be_bytes([entry[0], entry[1]]) {
                setting::ENABLE_PUSH if value > 1 => return Err(ErrorCode::ProtocolError.into()),
                setting::MAX_FRAME_SIZE if !(PAYLOAD_BYTES_MAX as u32..1 << 24).contains(&value) => {
                    return Err(ErrorCode::ProtocolError.into());
                }
                setting::INITIAL_WINDOW_SIZE => {
                    if value > U31_MAX {
                        return Err(ErrorCode::FlowControlError.into());
                    }
                    let change = i64::from(value) - i64::from(self.stream_window);
                    self.stream_window = value;
                    for stream in self.streams.iter_mut() {
                        stream.window += change;
                        check_window(stream.window)?;
                    }
                }
                // RFC 9218 §2.1.
                setting::NO_RFC7540_PRIORITIES => {
                    if value > 1 || self.old_priorities.is_some_and(|before| before != value) {
                        return Err(ErrorCode::ProtocolError.into());
                    }
                    old_priorities = Some(value);
                }
                // Larger frames and the client's table are not used.
                _ => {}
            }
        }
        self.old_priorities = old_priorities.or(Some(0));
        frame::put_settings_ack(out);
        Ok(())
    }

    fn take_window_update(&mut self, id: u32, increment: u32, out: &mut Vec<u8>) -> Outcome<()> {
        if increment == 0 || (id != 0 && self.is_idle(id)) {
            return Err(ErrorCode::ProtocolError.into());
        }
        if id == 0 {
            self.window += i64::from(increment);
            return Ok(check_window(self.window)?);
        }
        let Some(index) = self.streams.position(id) else { return Ok(()) };
        let window = &mut self.streams.at_mut(index).window;
        *window += i64::from(increment);
        if check_window(*window).is_ok() {
            return Ok(());
        }
        self.drop_stream(index);
        self.refuse(id, ErrorCode::FlowControlError, out)
    }

    fn take_reset(&mut self, id: u32) -> Outcome<()> {
        if self.is_idle(id) {
            return Err(ErrorCode::ProtocolError.into());
        }
        if let Some(index) = self.streams.position(id) {
            self.drop_stream(index);
        }
        Ok(self.budgets.take_reset()?)
    }

    /// Ends a stream without an answer, once the caller's work on it has ended.
    pub(super) fn drop_stream(&mut self, index: usize) {
        let stream = self.streams.at_mut(index);
        match stream.work {
            Work::Parked { .. } | Work::Abandoned => {
                stream.work = Work::Abandoned;
                // What still arrives is no content of a request.
                stream.passed = None;
            }
            Work::Receiving { .. } | Work::Sending { .. } | Work::Stalled { .. } | Work::Discarding => {
                drop(self.streams.remove(index));
            }
        }
    }

    /// Whether the client has not opened this stream.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        let is_after_last = match self.phase {
            // Streams that are ignored may have been opened.
            Phase::Final { .. } => false,
            _ => id > self.last_stream,
        };
        id.is_multiple_of(2) || is_after_last
    }
}
