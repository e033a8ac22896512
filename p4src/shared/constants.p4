// SPDX-License-Identifier: Apache-2.0
//
// Numbers shared by the switch, the control plane and the dataplane: table sizes, protocol numbers,
// fixed client numbers, fates of frames, drop reasons.

#ifndef LINKEMU_CONSTANTS
#define LINKEMU_CONSTANTS

// Table sizes. The control plane reads them from the P4Info.
const int PORTS = 512;
const int MACS = 8192;
const int VLANS = 4096;
const int PREFIXES4 = 8192;
const int PREFIXES6 = 4096;
const int GATES = 1024;
const int MIRRORS = 1024;
const int LOSSES = 1024;
const int BINS = 1024;
const int SOURCES = 4096;
const int HOSTS = 4096;
const int BOX_PORTS = 16;
const int BUCKETS = 256;
const int NOTES = 16;

// Bits of a client's cell. The cells are shared by all boxes.
#ifndef CLIENT_BITS
#define CLIENT_BITS 12
#endif
// Cells: client's cell ++ direction.
const int CLIENT_CELLS = 1 << (CLIENT_BITS + 1);
// Cells: client's cell ++ direction ++ fate.
const int FATE_CELLS = 1 << (CLIENT_BITS + 4);
// Cells: client's cell ++ direction ++ bin.
const int TRANSIT_CELLS = 1 << (CLIENT_BITS + 6);
// Cells: direction ++ bin.
const int LATENESS_CELLS = 1 << 6;
// Cells: port ++ reason.
const int PORT_DROP_CELLS = 1 << 12;
// Cells of `given`: a port, or from here on the direction of a flood.
const int GIVEN_FLOODS = 1 << 9;
const int GIVEN_CELLS = 1 << 10;
// Cells: port.
const int SENT_CELLS = 1 << 9;
// Cells: whether the frame goes to hosts ++ direction.
const int MIRRORED_CELLS = 1 << 2;

// EtherTypes.
const bit<16> TYPE_SHIM = 0x88b5; // IEEE 802, local experimental 1
const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_IPV6 = 0x86dd;
const bit<16> TYPE_TAG = 0x8100; // 802.1Q
const bit<16> TYPE_STAG = 0x88a8; // 802.1ad
const bit<16> TYPE_OLD_TAG = 0x9100; // stacked tags before 802.1ad

const bit<8> PROTOCOL_ICMPV6 = 58;

// Addresses of the shim's Ethernet header; locally administered.
const bit<48> MAC_OF_SWITCH = 0x020000000001;
const bit<48> MAC_OF_BOX = 0x020000000002;
const bit<4> SHIM_VERSION = 1;

typedef bit<1> direction_t;
const direction_t FORWARD = 0; // to the clients
const direction_t RETURN = 1;

// Number of a box behind the switch.
typedef bit<3> box_t;

// Client numbers. 0: unknown, the box classifies; from 2: assigned by the box.
const bit<16> CLIENT_BYPASS = 1; // traffic that a link needs to work: never impaired

// Protocol behind the tags of a frame.
typedef bit<2> kind_t;
const kind_t KIND_OTHER = 0; // not IP, or unreadable: a truncated or wrong header, or too many tags
const kind_t KIND_IPV4 = 1;
const kind_t KIND_IPV6 = 2;

// State of the loss chain; eight bits, because a Tofino ALU cannot flip a single bit.
typedef bit<8> state_t;
const state_t STATE_GOOD = 0;
const state_t STATE_BAD = 1;

// Fates: cells of `fates`.
typedef bit<3> fate_t;
const fate_t FATE_RECEIVED = 0; // from a host, and sent to the box
const fate_t FATE_RETURNED = 1; // from the box
const fate_t FATE_DELIVERED = 2; // sent to the hosts
const fate_t DROP_LOSS = 3;
const fate_t DROP_OUTAGE = 4; // the client gate was closed
const fate_t FATE_MARKED = 5; // delivered, with CE set
const fate_t FATE_STALE = 6; // delivered with a shim of another epoch: not measured
const fate_t FATE_UNKNOWN_LOSS = 7; // delivered with an unknown loss number

// Frames without a client: cells of `port_drops`.
typedef bit<3> reason_t;
const reason_t DROP_UNKNOWN_PORT = 0;
const reason_t DROP_NO_SHIM = 1; // from the box, without a shim or with another version
const reason_t DROP_WRONG_DIRECTION = 2; // from the box port of the other direction
const reason_t DROP_CUT = 3; // truncated Ethernet header
const reason_t DROP_NO_BOX = 4; // from a host, for a box that has no port

// Reserved bins.
typedef bit<5> bin_t;
const bin_t BIN_EARLY = 30; // of lateness: sent before its due time
const bin_t BIN_ABOVE = 31; // above all bounds

// Bits of a multicast group's number.
#ifndef GROUP_BITS
#define GROUP_BITS 16
#endif
// Multicast group of the hosts in a direction: this constant plus the direction.
const bit<GROUP_BITS> GROUP_OF_FORWARD = 1;

#endif
