//! Network devices, made and set up by rtnetlink(7), in the namespace of the calling thread.
//!
//! A message is a header, a body that depends on its kind, and attributes: length, kind, value, each
//! padded to four bytes; the value of some is attributes again.

use nix::{
    errno::Errno,
    libc,
    net::if_::if_nametoindex,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
        socket,
    },
};
use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

// Not in every libc: <linux/if_link.h>, <linux/veth.h>.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

const HEADER_LEN: usize = 16;

/// A socket to rtnetlink.
pub struct Netlink(OwnedFd);

impl Netlink {
    /// In the namespace of the calling thread, wherever that goes later.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn open() -> io::Result<Netlink> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let protocol = SockProtocol::NetlinkRoute;
        Ok(Netlink(socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?))
    }

    /// Makes a pair of veth devices: `name` here, and `peer` with the hardware address `mac` in the
    /// namespace `far`.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN here and there; EOPNOTSUPP in a kernel without veth.
    pub fn add_veth(
        &self,
        name: &str,
        peer: &str,
        mac: [u8; 6],
        far: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let create = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let mut message = Message::new(libc::RTM_NEWLINK, create);
        message.link_body(0, 0, 0);
        message.attribute(IFLA_IFNAME, name.as_bytes());
        message.nested(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"veth");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |there| {
                    there.link_body(0, 0, 0);
                    there.attribute(IFLA_IFNAME, peer.as_bytes());
                    there.attribute(IFLA_ADDRESS, &mac);
                    there.attribute(IFLA_NET_NS_FD, &far.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.ask(message)
    }

    /// Gives the device `name` an address.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN; ENODEV without the device.
    pub fn add_address(&self, name: &str, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let create = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let mut message = Message::new(libc::RTM_NEWADDR, create);
        message.put(&[libc::AF_INET as u8, prefix, 0, 0]);
        message.put(&if_nametoindex(name)?.to_ne_bytes());
        message.attribute(IFA_LOCAL, &address.octets());
        message.attribute(IFA_ADDRESS, &address.octets());
        self.ask(message)
    }

    /// Switches the device `name` on, with `flags` besides IFF_UP.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN; ENODEV without the device.
    pub fn switch_on(&self, name: &str, flags: i32) -> io::Result<()> {
        let flags = (libc::IFF_UP | flags).cast_unsigned();
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.link_body(if_nametoindex(name)?, flags, flags);
        self.ask(message)
    }

    /// Lets the kernel keep `packets` for the device `name` until they are taken.
    ///
    /// # Errors
    /// EPERM in some user namespaces.
    pub fn set_queue(&self, name: &str, packets: u32) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.link_body(if_nametoindex(name)?, 0, 0);
        message.attribute(IFLA_TXQLEN, &packets.to_ne_bytes());
        self.ask(message)
    }

    /// Sends a request, and waits for the kernel to say that it is done.
    fn ask(&self, message: Message) -> io::Result<()> {
        let kernel = NetlinkAddr::new(0, 0);
        sendto(self.0.as_raw_fd(), &message.finished(), &kernel, MsgFlags::empty())?;
        let mut answer = [0; 4096];
        loop {
            match recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
                Ok(length) => return acknowledged(&answer[..length]),
            }
        }
    }
}

/// What an NLMSG_ERROR says: the negative errno after the header, 0 for none.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let errno = answer.get(HEADER_LEN..HEADER_LEN + 4).and_then(|it| it.try_into().ok());
    match errno.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
        None => Err(io::Error::other("netlink: an answer without an errno")),
    }
}

/// A request, as far as it is written.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16) -> Message {
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut message = Message(vec![0; 4]); // the length, known in the end
        message.put(&kind.to_ne_bytes());
        message.put(&flags.to_ne_bytes());
        message.put(&[0; 8]); // its number and its sender: there is one request at a time
        message
    }

    /// The body of what is about devices, `struct ifinfomsg`: `flags` of those in `mask` are set.
    fn link_body(&mut self, index: u32, flags: u32, mask: u32) {
        self.put(&[libc::AF_UNSPEC as u8, 0, 0, 0]);
        self.put(&index.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
        self.put(&mask.to_ne_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |it| it.put(value));
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        let start = self.0.len();
        self.put(&[0; 2]);
        self.put(&kind.to_ne_bytes());
        fill(self);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn finished(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_their_lengths_are_not() {
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.nested(IFLA_LINKINFO, |info| info.attribute(IFLA_INFO_KIND, b"veth+"));
        let bytes = message.finished();
        assert_eq!(bytes.len(), 16 + 4 + 12);
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()), 32);
        let length = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
        assert_eq!((length(16), length(20)), (16, 9));
        assert_eq!(&bytes[24..], b"veth+\0\0\0");
    }

    #[test]
    fn a_refusal_is_an_error() {
        let mut answer = [0; 20];
        assert!(acknowledged(&answer).is_ok());
        answer[16..].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(acknowledged(&answer).unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!(acknowledged(&answer[..8]).is_err());
    }
}
