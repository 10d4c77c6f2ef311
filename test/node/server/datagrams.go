package main

import (
	"fmt"
	"net"
	"os"
	"time"
)

// answerDatagrams answers datagrams at an address until the end.
func answerDatagrams(network, at string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	conn, err := net.ListenPacket(network, at)
	if err != nil {
		return err
	}
	go func() {
		buffer := make([]byte, 100)
		for {
			_, from, err := conn.ReadFrom(buffer)
			if err == nil {
				_, err = conn.WriteTo([]byte(name), from)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	return nil
}

// askByDatagram prints the answer to a datagram, and returns an exit code.
func askByDatagram(address string) int {
	answer, err := func() (string, error) {
		conn, err := net.Dial("udp", address)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return "", err
		}
		if _, err := conn.Write([]byte("who?")); err != nil {
			return "", err
		}
		buffer := make([]byte, 100)
		n, err := conn.Read(buffer)
		return string(buffer[:n]), err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(answer)
	return 0
}
