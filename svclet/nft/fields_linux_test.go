package nft

import (
	"slices"
	"testing"
)

// What the kernel has as a key or value is read as it was written.
func TestFieldsAreReadAsTheyAreWritten(t *testing.T) {
	for _, test := range []struct {
		kinds []Kind
		text  string
		want  []string
	}{
		{[]Kind{IPv4, IPv4, Protocol, Port}, "192.0.2.1 . 10.96.0.1 . tcp . 80", []string{"192.0.2.1", "10.96.0.1", "tcp", "80"}},
		{[]Kind{IPv6, Protocol, Port, Number}, "fd00:96::1 . udp . 53 . 0x12345", []string{"fd00:96::1", "udp", "53", "74565"}},
		{[]Kind{Protocol, Port}, "sctp . 30000", []string{"sctp", "30000"}},
		{[]Kind{IPv4, Port}, "10.96.0.1 . tcp . 80", nil},
		{[]Kind{IPv6}, "10.96.0.1", nil},
	} {
		raw, known := fieldsOf(test.text)
		if got := Fields(raw, test.kinds...); !known || !slices.Equal(got, test.want) {
			t.Errorf("%s is %q, want %q", test.text, got, test.want)
		}
	}
	if got := Fields([]byte{1, 0, 0, 0}, Protocol); !slices.Equal(got, []string{""}) {
		t.Errorf("ICMP is %q", got)
	}
}
