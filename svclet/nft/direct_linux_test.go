package nft

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/netnstest"
)

// What the kernel has after commands that were sent to it directly is what it has after nft's.
func TestDirectCommandsAreWhatNFTMakesOfThem(t *testing.T) {
	for _, test := range []struct {
		family                 knftables.Family
		address, key, endpoint string
	}{
		{knftables.IPv4Family, "ipv4_addr", "10.96.0.1", "10.244.0.5"},
		{knftables.IPv6Family, "ipv6_addr", "fd00:96::1", "fd00:244::5"},
	} {
		ip := string(test.family)
		const table = "TABLE"
		first := strings.NewReplacer("FAMILY", ip, "ADDRESS", test.address, "ENDPOINT", test.endpoint).Replace(`add table FAMILY TABLE
add map FAMILY TABLE cluster-ips { type ADDRESS . inet_proto . inet_service : verdict ; }
add map FAMILY TABLE node-ports { type inet_proto . inet_service : verdict ; }
add map FAMILY TABLE endpoint-0 { type ADDRESS . inet_proto . inet_service : ADDRESS . inet_service ; }
add map FAMILY TABLE tcp-endpoints { typeof FAMILY daddr . meta l4proto . th dport . numgen random mod 1 : FAMILY daddr . tcp dport ; }
add map FAMILY TABLE hairpins { type ADDRESS . ADDRESS : verdict ; }
add set FAMILY TABLE service-ips { type ADDRESS ; }
add element FAMILY TABLE service-ips { ENDPOINT }
add element FAMILY TABLE endpoint-0 { KEY . tcp . 81 : ENDPOINT . 8080 }
add chain FAMILY TABLE old
add chain FAMILY TABLE used
add rule FAMILY TABLE used drop
add element FAMILY TABLE cluster-ips { KEY . tcp . 81 : goto used }
`)
		change := strings.NewReplacer("FAMILY", ip, "ENDPOINT", test.endpoint).Replace(`add chain FAMILY TABLE endpoint-a/web/tcp//8080
add chain FAMILY TABLE service-a
flush chain FAMILY TABLE used
delete element FAMILY TABLE cluster-ips { KEY . tcp . 81 }
add element FAMILY TABLE cluster-ips { KEY . tcp . 80 : goto service-a }
add element FAMILY TABLE cluster-ips { KEY . sctp . 8080 : drop }
delete element FAMILY TABLE endpoint-0 { KEY . tcp . 81 }
add element FAMILY TABLE endpoint-0 { KEY . tcp . 80 : ENDPOINT . 8080 }
add element FAMILY TABLE endpoint-0 { KEY . udp . 53 : ENDPOINT . 5353 }
add element FAMILY TABLE tcp-endpoints { KEY . tcp . 80 . 0x12345 : ENDPOINT . 80 }
add element FAMILY TABLE hairpins { ENDPOINT . ENDPOINT : jump used }
add element FAMILY TABLE node-ports { udp . 30053 : goto service-a }
add element FAMILY TABLE service-ips { KEY }
delete element FAMILY TABLE service-ips { ENDPOINT }
delete chain FAMILY TABLE old
`)
		withNFT(t, func(nft func(stdin string, args ...string) string) {
			fill := func(text, name string) string { return strings.NewReplacer(table, name, "KEY", test.key).Replace(text) }
			nft(fill(first+change, "by-nft"), "-f", "-")
			nft(fill(first, "direct"), "-f", "-")
			k, err := Tables(test.family, "direct")
			if err != nil {
				t.Error(err)
				return
			}
			// The last command makes the first attempt fail as a whole.
			failing := fill(change+"flush chain FAMILY TABLE missing\n", "direct")
			for _, commands := range []string{failing, fill(change, "direct")} {
				d, known := k.(kernel).compile(commands)
				if !known {
					t.Errorf("not all commands are known:\n%s", commands)
					return
				}
				if err := d.conn.Flush(); (err != nil) != (commands == failing) {
					t.Errorf("error %v", err)
				}
			}
			want := strings.ReplaceAll(nft("", "list", "table", ip, "by-nft"), "by-nft", "direct")
			if got := nft("", "list", "table", ip, "direct"); got != want || !strings.Contains(got, "goto service-a") {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			for _, unknown := range []string{"add set ip x s { type ipv4_addr ; }", "add rule ip x c drop", "add element ip x pod-ranges { 10.0.0.0/8 }", "add table ip x"} {
				if _, known := k.(kernel).compile(unknown + "\n"); known {
					t.Errorf("%q is known", unknown)
				}
			}
		})
	}
}

// The kernel's messages about as many operations as are sent at once fit into the buffer of the
// socket, and their number is what is read, also if the kernel refuses them.
func TestAsManyOperationsAsAreSentAtOnceAreAcknowledged(t *testing.T) {
	withNFT(t, func(nft func(stdin string, args ...string) string) {
		nft("add table ip many\nadd set ip many numbers { type inet_proto . inet_service ; }\n", "-f", "-")
		k, err := Tables(knftables.IPv4Family, "many")
		if err != nil {
			t.Error(err)
			return
		}
		for _, test := range []struct {
			last    string
			refused bool
		}{{"flush chain ip many missing\n", true}, {"", false}} {
			var commands strings.Builder
			for port := range maxDirect - strings.Count(test.last, "\n") {
				fmt.Fprintf(&commands, "add element ip many numbers { tcp . %d }\n", 1000+port)
			}
			d, known := k.(kernel).compile(commands.String() + test.last)
			if !known {
				t.Error("not all commands are known")
				return
			}
			if err := d.conn.Flush(); (err != nil) != test.refused || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		}
		if got := nft("", "list", "set", "ip", "many", "numbers"); !strings.Contains(got, "1000") || !strings.Contains(got, fmt.Sprint(1000+maxDirect-1)) {
			t.Errorf("%s was written", got)
		}
	})
}

func TestAnAcknowledgementThatTheKernelDoesNotSendIsNotAwaitedForever(t *testing.T) {
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := limitReads(time.Millisecond)(socket); err != nil {
		t.Fatal(err)
	}
	if _, err := socket.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if size, err := socket.ReadBuffer(); err != nil || os.Geteuid() == 0 && size < readBuffer {
		t.Errorf("the buffer has %d bytes, error %v", size, err)
	}
}

func TestEachChangeOfATableIncreasesTheGeneration(t *testing.T) {
	withNFT(t, func(nft func(stdin string, args ...string) string) {
		var last uint32
		for _, commands := range []string{"add table ip other", "add chain ip other c", "flush ruleset", ""} {
			if commands != "" {
				nft(commands, "-f", "-")
			}
			next, err := Generation()
			if err != nil || (next > last) != (commands != "") {
				t.Errorf("after %q the generation is %d, and before it was %d: %v", commands, next, last, err)
			}
			last = next
		}
	})
}

// withNFT runs a test in a new network namespace. Its argument runs the program nft there.
func withNFT(t *testing.T, test func(nft func(stdin string, args ...string) string)) {
	t.Helper()
	netnstest.Run(t, "nft", func(t *testing.T) {
		test(func(stdin string, args ...string) string {
			command := exec.CommandContext(t.Context(), "nft", args...)
			command.Stdin = strings.NewReader(stdin)
			out, err := command.CombinedOutput()
			if err != nil {
				t.Errorf("nft %v: %v: %s", args, err, out)
			}
			return string(out)
		})
	})
}
