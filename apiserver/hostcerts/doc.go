// Package hostcerts owns the certificates of an aggregated server: the Secrets of the
// host that hold its authorities and certificates, and the caBundle of its APIServices.
//
// Any number of servers share a Secret. The first one creates it; all of them renew
// it, and the host's check of the resource version decides which one succeeds. The
// others use what that one has written.
//
// An authority is replaced in three steps, so that no client sees a certificate that
// it does not trust: its successor is added to the authorities that clients trust;
// then it begins to sign; the predecessor is removed when it has expired.
package hostcerts
