package storage

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apiserver/etcd"
)

func TestAnOverriddenResourceIsStoredInItsOwnEtcd(t *testing.T) {
	dir := t.TempDir()
	main := startEtcd(t, etcd.Config{Dir: filepath.Join(dir, "main")})
	other := startEtcd(t, etcd.Config{Dir: filepath.Join(dir, "other")})
	b, err := Open(Config{Servers: main.Endpoints(), Overrides: []string{
		"/configmaps#" + strings.Join(other.Endpoints(), ";"), "apps/deployments#" + strings.Join(other.Endpoints(), ";"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	ctx := t.Context()
	configs, _ := configMaps(t, b)
	secrets, _ := storeOf(t, b, "secrets")
	create(ctx, t, configs, "overridden")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "main", Namespace: "default"}}
	if err := secrets.Create(ctx, "/secrets/default/main", secret, &corev1.Secret{}, 0); err != nil {
		t.Fatal(err)
	}
	for member, want := range map[*etcd.Server][]string{
		main:  {"/registry/secrets/default/main"},
		other: {"/registry/configmaps/default/overridden"},
	} {
		if got := objectKeys(ctx, t, member.Client()); !slices.Equal(got, want) {
			t.Errorf("etcd at %v has %v, want %v", member.Endpoints(), got, want)
		}
	}
	if got, err := list(ctx, configs, everything); err != nil || got != "overridden" {
		t.Errorf("list: %q, %v", got, err)
	}
	awaitHealthy(t, b)
	if sizes := b.Sizes(ctx); len(sizes) != 2 {
		t.Errorf("%d sizes of databases, want one for each cluster", len(sizes))
	}
}

func TestTheCheckNamesOnlyTheEtcdsThatDoNotAnswer(t *testing.T) {
	dir := t.TempDir()
	members := []*etcd.Server{startEtcd(t, etcd.Config{Dir: filepath.Join(dir, "main")}), startEtcd(t, etcd.Config{Dir: filepath.Join(dir, "other")})}
	b, err := Open(Config{Servers: members[0].Endpoints(), Overrides: []string{"/events#" + members[1].Endpoints()[0]}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	awaitHealthy(t, b)
	for i, stopped := range []int{0, 1} {
		members[stopped].Stop()
		err := b.check(t.Context())
		for j, member := range members {
			if names := err != nil && strings.Contains(err.Error(), member.Endpoints()[0]); names != (j <= i) {
				t.Errorf("after the end of %d of 2: %v", i+1, err)
			}
		}
	}
}

func objectKeys(ctx context.Context, t *testing.T, client *clientv3.Client) []string {
	t.Helper()
	found, err := client.Get(ctx, DefaultPrefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range found.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func TestOverridesNameResourcesAndServers(t *testing.T) {
	got, err := ParseOverrides([]string{"/events#http://a:1;http://b:1", "example.com/widgets#https://c:1"})
	want := map[schema.GroupResource][]string{
		{Resource: "events"}:                        {"http://a:1", "http://b:1"},
		{Group: "example.com", Resource: "widgets"}: {"https://c:1"},
	}
	if err != nil || !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, wrong := range []string{"", "/Events#http://a:1", " /events#http://a:1", "a b/events#http://a:1", "/events#http://a:1;", "events", "/events", "events#http://a:1", "a/b/c#http://a:1", "apps/#http://a:1", "/events#", "/events#a:1"} {
		if got, err := ParseOverrides([]string{wrong}); err == nil {
			t.Errorf("%q gives %v", wrong, got)
		}
	}
}

func TestServersAreURLsOfEtcd(t *testing.T) {
	for _, server := range []string{"http://127.0.0.1:2379", "https://etcd.example:2379/", "http://[::1]:2379", "unix:///run/etcd.sock", "unix://run/etcd.sock", "unixs:///run/etcd.sock"} {
		if err := ValidateServer(server); err != nil {
			t.Errorf("refused: %v", err)
		}
	}
	for _, server := range []string{
		"", "127.0.0.1:2379", "http://", "http://127.0.0.1", "http://127.0.0.1:0", "http://127.0.0.1:65536", "http://127.0.0.1:client", "http://a b:2379", "http://::1:2379",
		" http://127.0.0.1:2379", "http://127.0.0.1:2379/path", "http://127.0.0.1:2379?a=b", "http://127.0.0.1:2379#a", "http://user@127.0.0.1:2379", "ftp://a:1", "unix://",
	} {
		if err := ValidateServer(server); err == nil || !strings.Contains(err.Error(), "http://HOST:PORT") {
			t.Errorf("%q: %v", server, err)
		}
	}
}
