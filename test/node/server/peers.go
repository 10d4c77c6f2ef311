package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"svc.dev/svc/test/sctp"
)

// answerPeers answers connections, datagrams and associations of SCTP at an IP address and a
// port, with the name of its pod, until the end.
func answerPeers(at string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	family := "4" // the address of all of IPv6 stands for both families otherwise
	if strings.HasPrefix(at, "[") {
		family = "6"
	}
	listener, err := net.Listen("tcp"+family, at)
	if err != nil {
		return err
	}
	associations, err := sctp.Listen(context.Background(), at)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			_, _ = conn.Write([]byte(name)) // the client reports what it misses
			conn.Close()
		}
	}()
	go func() {
		if err := associations.Serve(func(net.Addr) []byte { return []byte(name) }); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return answerDatagrams("udp"+family, at)
}

// patience is how long an address has to answer, and interval how long until a packet is sent
// again that the kernel does not repeat.
const patience, interval = 2 * time.Second, 500 * time.Millisecond

// reach prints those of the addresses, such as udp://10.88.0.2:80, that answer. All are tried
// at the same time, but those of SCTP of one host in turn: see [sctp.Conn.Init].
func reach(addresses []string) error {
	var mu sync.Mutex
	var errs []error
	var trying sync.WaitGroup
	hosts := map[string]*sync.Mutex{}
	for _, text := range addresses {
		u, err := url.Parse(text)
		if err != nil {
			return err
		}
		if hosts[u.Hostname()] == nil {
			hosts[u.Hostname()] = &sync.Mutex{}
		}
		turn := hosts[u.Hostname()]
		trying.Go(func() {
			if u.Scheme == "sctp" {
				turn.Lock()
				defer turn.Unlock()
			}
			answered, err := answers(u.Scheme, u.Host)
			mu.Lock()
			defer mu.Unlock()
			if answered {
				fmt.Println(text)
			}
			errs = append(errs, err)
		})
	}
	trying.Wait()
	return errors.Join(errs...)
}

// answers reports whether an address answers in time. The error is of the client.
func answers(protocol, address string) (bool, error) {
	end := time.Now().Add(patience)
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	switch protocol {
	case "tcp":
		conn, err := (&net.Dialer{}).DialContext(ctx, protocol, address)
		if err != nil {
			return false, nil
		}
		defer conn.Close()
		if err := conn.SetDeadline(end); err != nil {
			return false, err
		}
		n, _ := conn.Read(make([]byte, 1))
		return n > 0, nil
	case "udp":
		conn, err := (&net.Dialer{}).DialContext(ctx, protocol, address)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		for time.Now().Before(end) {
			if err := conn.SetDeadline(time.Now().Add(interval)); err != nil {
				return false, err
			}
			if _, err := conn.Write([]byte("who?")); err != nil {
				continue // what ICMP has reported
			}
			if n, _ := conn.Read(make([]byte, 100)); n > 0 {
				return true, nil
			}
		}
		return false, nil
	case "sctp":
		conn, err := sctp.Dial(ctx, address)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		for time.Now().Before(end) {
			if _, err := conn.Init(time.Now().Add(interval)); err == nil {
				return true, nil
			}
		}
		return false, nil
	}
	return false, fmt.Errorf("protocol %q: one of tcp, udp, sctp", protocol)
}
