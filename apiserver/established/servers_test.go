package established

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/etcd"
)

// deadline bounds the waits of the tests.
const deadline = 30 * time.Second

// startEtcd starts an etcd and returns a client of another process, and one of its own.
func startEtcd(t *testing.T) (external, embedded *clientv3.Client) {
	t.Helper()
	member, err := etcd.Start(t.Context(), etcd.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Stop)
	external, err = clientv3.New(clientv3.Config{Endpoints: member.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = external.Close() })
	return external, member.Client()
}

// run runs a server, and returns the function that stops it.
func run(t *testing.T, s *Servers) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx, clock.RealClock{})
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	select {
	case <-s.listable:
	case <-time.After(deadline):
		t.Fatal("not registered")
	}
	return stop
}

func expectAlone(t *testing.T, name string, s *Servers, want bool) {
	t.Helper()
	if got := s.Alone(); got != want {
		t.Errorf("the %s server is alone: %v", name, got)
	}
}

func TestAServerKnowsWhetherItIsTheOnlyOneOfAnExternalEtcd(t *testing.T) {
	client, _ := startEtcd(t)
	first, second := NewServers(client, "/registry", "first", false), NewServers(client, "/registry", "second", false)
	expectAlone(t, "unregistered", first, false)
	run(t, first)
	expectAlone(t, "first", first, true)
	expectAlone(t, "unregistered", second, false)
	stop := run(t, second)
	expectAlone(t, "first", first, false)
	expectAlone(t, "second", second, false)
	stop()
	expectAlone(t, "remaining", first, true)

	other := NewServers(client, "/other", "first", false)
	run(t, other)
	expectAlone(t, "first of a prefix", other, true)
}

func TestAServerWithAnEmbeddedEtcdKnowsTheOthersAndTheyKnowIt(t *testing.T) {
	client, own := startEtcd(t)
	embedded, other := NewServers(own, "/registry", "first", true), NewServers(client, "/registry", "second", false)
	stop := run(t, embedded)
	expectAlone(t, "first", embedded, true)
	run(t, other)
	expectAlone(t, "first", embedded, false)
	expectAlone(t, "second", other, false)
	stop() // its data may be moved to another etcd
	expectAlone(t, "remaining", other, true)
}

func TestAServerWhoseLeaseHasExpiredRegistersAgain(t *testing.T) {
	client, _ := startEtcd(t)
	s := NewServers(client, "/registry", "first", false)
	run(t, s)
	found, err := client.Get(t.Context(), s.own)
	if err != nil || len(found.Kvs) != 1 {
		t.Fatal(found, err)
	}
	changes := client.Watch(t.Context(), s.own, clientv3.WithRev(found.Header.Revision+1))
	if _, err := client.Revoke(t.Context(), clientv3.LeaseID(found.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	timeout := time.After(deadline)
	for written := false; !written; {
		select {
		case change := <-changes:
			for _, e := range change.Events {
				written = written || e.Type == clientv3.EventTypePut
			}
		case <-timeout:
			t.Fatal("it does not register again")
		}
	}
	expectAlone(t, "registered", s, true)
}

func TestAServerWhoseEtcdDoesNotAnswerIsNotKnownToBeTheOnlyOne(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + t.TempDir() + "/none"}})
	if err != nil {
		t.Fatal(err)
	}
	s := NewServers(client, "/registry", "first", true)
	_ = client.Close()
	expectAlone(t, "lonely", s, false)
}

func TestAServerListsDefinitionsAtAFullEtcdAndRegistersOnceItHasSpace(t *testing.T) {
	client, own := startEtcd(t)
	members, err := client.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: members.Members[0].ID}
	if _, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	servers := []*Servers{NewServers(client, "/registry", "first", false), NewServers(own, "/registry", "second", true)}
	for _, s := range servers {
		run(t, s)
	}
	expectAlone(t, "unregistered", servers[0], false)
	if _, err := client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	registered := func() int64 {
		found, err := client.Get(t.Context(), "/registry/apiservers/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return found.Count
	}
	NewWithT(t).Eventually(registered, deadline).Should(BeEquivalentTo(len(servers)))
}
