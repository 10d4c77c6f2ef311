package apiserver_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"svc.dev/svc/apiserver"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

// raiseNoSpace makes etcd refuse writes as if it had reached its quota.
func raiseNoSpace(t *testing.T, client *clientv3.Client) {
	t.Helper()
	members, err := client.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: members.Members[0].ID,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAServerThatStartsAtAFullEtcdReadsAndDeletes(t *testing.T) {
	oldest, newest := release.Release{Major: 1, Minor: 28}, release.Newest
	for _, c := range []struct {
		name           string
		before, after  release.Release
		recorded, with string // in the record before the start
	}{
		{name: "whose record stays", before: oldest, after: oldest},
		{name: "of another svc", before: oldest, after: oldest, recorded: release.SVCVersion(), with: "0.0.9"},
		{name: "of a newer release", before: oldest, after: newest},
		{name: "of an older release", before: oldest, after: oldest, recorded: `"1.28"`, with: fmt.Sprintf("%q", newest)},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, member := newOptions(t)
			second := *o
			o.Release, second.Release = c.before, c.after
			first := start(t, o)
			const configs = "/api/v1/namespaces/default/configmaps"
			config := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`
			if code, body := first.do(t, http.MethodPost, configs, config, false); code != http.StatusCreated {
				t.Fatalf("%d %s", code, body)
			}
			first.stop(t)
			client := member.Client()
			if c.recorded != "" {
				found, err := client.Get(t.Context(), "/registry/release")
				if err != nil || len(found.Kvs) != 1 || !strings.Contains(string(found.Kvs[0].Value), c.recorded) {
					t.Fatal(found, err)
				}
				if _, err := client.Put(t.Context(), "/registry/release", strings.Replace(string(found.Kvs[0].Value), c.recorded, c.with, 1)); err != nil {
					t.Fatal(err)
				}
			}
			external, err := clientv3.New(clientv3.Config{Endpoints: member.Endpoints()})
			if err != nil {
				t.Fatal(err)
			}
			defer external.Close()
			raiseNoSpace(t, external)
			r := startUnready(t, &second)
			NewWithT(t).Eventually(func() string { _, body := r.get(t, "/readyz", false); return body }, "30s").Should(Equal("ok"))
			for _, request := range []struct {
				method, path, body string
				codes              []int
				text               string
			}{
				{http.MethodGet, configs + "/a", "", []int{http.StatusOK}, ""},
				{http.MethodGet, "/livez", "", []int{http.StatusOK}, ""},
				{http.MethodPost, configs, strings.Replace(config, `"a"`, `"b"`, 1), []int{http.StatusInternalServerError, http.StatusServiceUnavailable}, "database space exceeded"},
				{http.MethodDelete, configs + "/a", "", []int{http.StatusOK}, ""},
				{http.MethodGet, configs + "/a", "", []int{http.StatusNotFound}, ""},
			} {
				code, body := r.do(t, request.method, request.path, request.body, false)
				NewWithT(t).Expect(request.codes).To(ContainElement(code), "%s %s answers %s", request.method, request.path, body)
				NewWithT(t).Expect(body).To(ContainSubstring(request.text))
			}
		})
	}
}

// startUnready starts a server on a new port, and returns when the port is open.
func startUnready(t *testing.T, o *options.Options) *running {
	t.Helper()
	var err error
	if o.SecureServing.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{url: "https://" + server.Address(), client: newClient(), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.done <- server.Run(ctx, nil) }()
	t.Cleanup(func() { r.stop(t) })
	return r
}
