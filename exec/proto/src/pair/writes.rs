//! The writes that the guest makes of its port, as the agent does: frames of whatever is due in the first,
//! and in a second what more the read of one stream gave.

use alloc::vec;
use alloc::vec::Vec;

use super::Pair;
use crate::guest::{FRAMES_PER_READ, Transmit};
use crate::{ExecId, FRAME_MAX, HEADER_LEN, Stream};

impl Pair {
    /// Fills one write of the guest; gives the frames in it.
    pub fn guest_write(&mut self, size: usize) -> Vec<Vec<u8>> {
        self.guest_writes(&[size]).remove(0)
    }

    /// Fills the first of these writes of the guest, and the others as far as one read of a stream
    /// does; gives the frames in each.
    fn guest_writes(&mut self, sizes: &[usize]) -> Vec<Vec<Vec<u8>>> {
        let mut writes = vec![Vec::new(); sizes.len()];
        let mut buf = vec![0; sizes[0]];
        let mut at = 0;
        loop {
            match self.guest.poll_transmit(&mut buf[at..]) {
                Transmit::Frame(n) => {
                    writes[0].push(buf[at..at + n].to_vec());
                    at += n;
                }
                Transmit::Read { id, stream, max } => {
                    // Which write each frame goes to, and its payload.
                    let mut plan = vec![(0, max)];
                    for (write, size) in sizes.iter().enumerate() {
                        let mut room = match write {
                            0 => size - at - HEADER_LEN - max,
                            _ => *size,
                        };
                        while plan.len() < FRAMES_PER_READ {
                            let planned: Vec<_> = plan.iter().map(|(_, len)| *len).collect();
                            let len = self.guest.further_read(id, stream, &planned, room);
                            if len == 0 {
                                break;
                            }
                            plan.push((write, len));
                            room -= HEADER_LEN + len;
                        }
                    }
                    let mut bytes =
                        self.read_pipe(id, stream, plan.iter().map(|(_, len)| len).sum());
                    for (write, len) in plan {
                        let n = len.min(bytes.len());
                        if n == 0 {
                            break;
                        }
                        let mut frame = vec![0; HEADER_LEN];
                        frame.extend(bytes.drain(..n));
                        let len = self.guest.output_read(id, stream, n, &mut frame);
                        assert_eq!(len, HEADER_LEN + n, "what was asked for is framed");
                        at += if write == 0 { len } else { 0 };
                        writes[write].push(frame);
                    }
                    if writes.iter().skip(1).any(|frames| !frames.is_empty()) {
                        return writes;
                    }
                }
                Transmit::Full | Transmit::Idle => return writes,
            }
        }
    }

    /// What a command has in a pipe, up to `most` bytes.
    fn read_pipe(&mut self, id: ExecId, stream: Stream, most: usize) -> Vec<u8> {
        let command = self.commands.get_mut(&id).unwrap();
        let pipe = command.pipes.entry(stream).or_default();
        let n = pipe.len().min(most);
        assert!(n > 0, "the scheduler asked for a pipe that holds nothing");
        let bytes = pipe.drain(..n).collect();
        if pipe.is_empty() {
            self.guest.stream_ready(id, stream, false);
            if command.exited {
                self.guest.stream_ended(id, stream);
            }
        }
        bytes
    }

    /// The writes that the agent makes of one turn reach the host, each as one chain.
    pub fn guest_sends(&mut self) -> bool {
        let writes = self.guest_writes(&[FRAME_MAX; 2]);
        for frames in &writes {
            let mut rest: usize = frames.iter().map(Vec::len).sum();
            for frame in frames {
                rest -= HEADER_LEN;
                self.host_receives(frame, rest);
                rest -= frame.len() - HEADER_LEN;
            }
        }
        writes.iter().any(|frames| !frames.is_empty())
    }
}
