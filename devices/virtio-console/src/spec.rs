//! Numbers and messages of the console device (VIRTIO 1.2, section 5.3).
//!
//! The kernel's `virtio_console.h` is not among `virtio-bindings`' headers, hence the constants.

/// Feature bit: several ports and a control queue pair.
pub(crate) const F_MULTIPORT: u64 = 1 << 1;

/// Ports offered. The first is the console, the second the agent's.
pub(crate) const MAX_PORTS: u32 = 2;

/// Port number of the console.
pub(crate) const CONSOLE_PORT: u32 = 0;
/// Port number of the agent.
pub(crate) const AGENT_PORT: u32 = 1;

/// What the guest finds in `/sys/class/virtio-ports/*/name` for the agent's port.
pub const AGENT_PORT_NAME: &str = "forebay.agent.0";

/// Bytes of a control message without its name.
pub(crate) const CONTROL_LEN: usize = 8;

/// The configuration space: columns and rows (u16 each, unused without `SIZE`), the number of
/// ports (u32), the emergency write register (u32, not offered).
pub(crate) const CONFIG_SPACE: [u8; 12] = {
    let ports = MAX_PORTS.to_le_bytes();
    [
        0, 0, 0, 0, ports[0], ports[1], ports[2], ports[3], 0, 0, 0, 0,
    ]
};

/// Events of control messages (section 5.3.6.2).
pub(crate) mod event {
    pub(crate) const DEVICE_READY: u16 = 0;
    pub(crate) const PORT_ADD: u16 = 1;
    pub(crate) const PORT_READY: u16 = 3;
    pub(crate) const CONSOLE_PORT: u16 = 4;
    pub(crate) const PORT_OPEN: u16 = 6;
    pub(crate) const PORT_NAME: u16 = 7;
}

/// A control message without its name: port, event, value, little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ControlMessage {
    pub(crate) port: u32,
    pub(crate) event: u16,
    pub(crate) value: u16,
}

impl ControlMessage {
    pub(crate) fn from_bytes(bytes: [u8; CONTROL_LEN]) -> Self {
        let [p0, p1, p2, p3, e0, e1, v0, v1] = bytes;
        Self {
            port: u32::from_le_bytes([p0, p1, p2, p3]),
            event: u16::from_le_bytes([e0, e1]),
            value: u16::from_le_bytes([v0, v1]),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; CONTROL_LEN] {
        let [p0, p1, p2, p3] = self.port.to_le_bytes();
        let [e0, e1] = self.event.to_le_bytes();
        let [v0, v1] = self.value.to_le_bytes();
        [p0, p1, p2, p3, e0, e1, v0, v1]
    }
}
