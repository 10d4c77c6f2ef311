package apiserver_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Servers of one etcd must know of each other whether they are alone: package established.
func TestAServerIsRegisteredInItsEtcdWhileItRuns(t *testing.T) {
	o, member := newOptions(t)
	client := member.Client()
	expect := func(n int) {
		t.Helper()
		await(t, func() (int, string) {
			found, err := client.Get(t.Context(), "/registry/apiservers/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				t.Fatal(err)
			}
			return int(found.Count), "servers are registered"
		}, n)
	}
	first := start(t, o)
	expect(1)
	others, _ := newOptions(t)
	others.Etcd.Servers = o.Etcd.Servers
	second := start(t, others)
	expect(2)
	first.stop(t)
	expect(1)
	second.stop(t)
	expect(0)
}
