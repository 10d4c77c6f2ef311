package clusterip

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/servicerange"
)

// cluster has reservations, objects and services in memory.
type cluster struct {
	mu           sync.Mutex
	reservations map[string]resource.Owner
	objects      map[string]*networkingv1.IPAddress
	services     map[string]*corev1.Service
	uids         int
	// refuse, if set, is the error of writes of objects.
	refuse error
}

func newCluster() *cluster {
	return &cluster{reservations: map[string]resource.Owner{}, objects: map[string]*networkingv1.IPAddress{}, services: map[string]*corev1.Service{}}
}

func (c *cluster) addresses() *Addresses { return NewAddresses(pool{c}, objects{c}, c.service) }

func (c *cluster) service(_ context.Context, namespace, name string) (*corev1.Service, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.services[namespace+"/"+name]; s != nil {
		return s, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource(services), name)
}

// state lists what there is: "10.0.0.1 reserved a object a".
func (c *cluster) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := map[string]string{}
	for key, owner := range c.reservations {
		lines[key] = " reserved " + owner.Name
	}
	for key, object := range c.objects {
		lines[key] += " object " + object.Spec.ParentRef.Name
		if !managed(object) {
			lines[key] += " of a user"
		}
	}
	var all []string
	for _, key := range slices.Sorted(maps.Keys(lines)) {
		all = append(all, key+lines[key])
	}
	return strings.Join(all, "; ")
}

// pool implements resource.Reservations.
type pool struct{ *cluster }

func (p pool) Reserve(_ context.Context, key string, owner resource.Owner) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.reservations[key]; ok {
		return taken(key)
	}
	p.reservations[key] = owner
	return nil
}

func (p pool) Release(_ context.Context, key string, owner resource.Owner) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reservations[key] == owner {
		delete(p.reservations, key)
	}
	return nil
}

func (p pool) Held(context.Context) (map[string]resource.Owner, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.reservations), nil
}

// objects implements Objects.
type objects struct{ *cluster }

func (o objects) Get(_ context.Context, name string) (*networkingv1.IPAddress, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if object := o.objects[name]; object != nil {
		return object, nil
	}
	return nil, apierrors.NewNotFound(networkingv1.Resource("ipaddresses"), name)
}

func (o objects) List(context.Context) ([]*networkingv1.IPAddress, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.objects)), nil
}

func (o objects) Create(_ context.Context, object *networkingv1.IPAddress) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refuse != nil {
		return o.refuse
	}
	if o.objects[object.Name] != nil {
		return taken(object.Name)
	}
	o.uids++
	object.UID = types.UID(fmt.Sprint(o.uids))
	o.cluster.objects[object.Name] = object.DeepCopy()
	return nil
}

func (o objects) Delete(_ context.Context, name string, allowed func(*networkingv1.IPAddress) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	object := o.cluster.objects[name]
	if object == nil {
		return apierrors.NewNotFound(networkingv1.Resource("ipaddresses"), name)
	}
	if err := allowed(object); err != nil {
		return err
	}
	delete(o.cluster.objects, name)
	return nil
}

func owner(name string) resource.Owner {
	return resource.Owner{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}
}

func service(name string, addresses ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	s.Spec.ClusterIPs = addresses
	return s
}

func ofUser(address string) *networkingv1.IPAddress {
	o := newObject(address, "default", "gateway")
	o.Labels, o.UID = nil, "user"
	o.Spec.ParentRef.Resource = "gateways"
	return o
}

const ip = "10.0.0.1"

func TestAReservedAddressHasAnObject(t *testing.T) {
	for _, test := range []struct {
		rule  string
		begin func(*cluster)
		taken bool
		want  string // after a has tried to reserve it
		after string // after a has released it
	}{
		{rule: "a free one", want: "10.0.0.1 reserved a object a"},
		{rule: "one that is reserved, with its object", taken: true, begin: func(c *cluster) {
			c.reservations[ip] = owner("b")
			c.objects[ip] = newObject(ip, "default", "b")
		}, want: "10.0.0.1 reserved b object b", after: "10.0.0.1 reserved b object b"},
		{rule: "one that a server without objects has reserved", taken: true, begin: func(c *cluster) {
			c.reservations[ip] = owner("b")
		}, want: "10.0.0.1 reserved b", after: "10.0.0.1 reserved b"},
		{rule: "one that a user has taken", taken: true, begin: func(c *cluster) { c.objects[ip] = ofUser(ip) },
			want: "10.0.0.1 object gateway of a user", after: "10.0.0.1 object gateway of a user"},
		{rule: "one whose service was deleted by a server without objects", begin: func(c *cluster) { c.objects[ip] = newObject(ip, "default", "b") },
			want: "10.0.0.1 reserved a object a"},
		{rule: "one whose service has another address now", begin: func(c *cluster) {
			c.objects[ip], c.services["default/b"] = newObject(ip, "default", "b"), service("b", "10.0.0.2")
		}, want: "10.0.0.1 reserved a object a"},
		{rule: "one whose reservation was lost", taken: true, begin: func(c *cluster) {
			c.objects[ip], c.services["default/b"] = newObject(ip, "default", "b"), service("b", ip)
		}, want: "10.0.0.1 object b", after: "10.0.0.1 object b"},
		{rule: "one whose object cannot be written", begin: func(c *cluster) { c.refuse = apierrors.NewInternalError(fmt.Errorf("etcd")) }},
	} {
		t.Run(test.rule, func(t *testing.T) {
			c := newCluster()
			if test.begin != nil {
				test.begin(c)
			}
			a := c.addresses()
			err := a.Reserve(t.Context(), ip, owner("a"))
			if apierrors.IsAlreadyExists(err) != test.taken || (err != nil) != (test.taken || c.refuse != nil) {
				t.Fatalf("error %v", err)
			}
			if got := c.state(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if err := a.Release(t.Context(), ip, owner("a")); err != nil {
				t.Fatal(err)
			}
			if got := c.state(); got != test.after {
				t.Errorf("after the release\ngot  %s\nwant %s", got, test.after)
			}
		})
	}
}

func TestAddressesOfUsersAreHeld(t *testing.T) {
	c := newCluster()
	c.objects["10.0.0.2"], c.objects["10.0.0.3"] = ofUser("10.0.0.2"), newObject("10.0.0.3", "default", "gone")
	c.reservations[ip] = owner("a")
	held, err := c.addresses().Held(t.Context())
	if err != nil || !maps.Equal(held, map[string]resource.Owner{ip: owner("a"), "10.0.0.2": {}}) {
		t.Errorf("held are %v, %v", held, err)
	}
}

// Servers with and without objects reserve and release the same few addresses at the same
// time: no two ever have one, and in the end all objects agree with the reservations.
func TestTwoServicesNeverHaveTheSameAddress(t *testing.T) {
	const owners, keys, rounds = 32, 4, 60
	c := newCluster()
	var holding [keys]struct {
		sync.Mutex
		by string
	}
	run := func(me resource.Owner, p resource.Reservations) error {
		random := rand.New(rand.NewPCG(1, uint64(len(me.Name))))
		for range rounds {
			i := random.IntN(keys)
			key := fmt.Sprintf("10.0.0.%d", i+1)
			err := p.Reserve(t.Context(), key, me)
			if apierrors.IsAlreadyExists(err) {
				continue
			} else if err != nil {
				return err
			}
			holding[i].Lock()
			by := holding[i].by
			holding[i].by = me.Name
			holding[i].Unlock()
			if by != "" {
				return fmt.Errorf("%s got %s, which %s has", me.Name, key, by)
			}
			holding[i].Lock()
			holding[i].by = ""
			holding[i].Unlock()
			if err := p.Release(t.Context(), key, me); err != nil {
				return err
			}
		}
		return nil
	}
	var group sync.WaitGroup
	for i := range owners {
		var p resource.Reservations = c.addresses()
		if i%4 == 0 {
			p = pool{c}
		}
		group.Go(func() {
			if err := run(owner(fmt.Sprint("owner-", i)), p); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(c.reservations) > 0 {
		t.Errorf("left are %s", c.state())
	}
	for key, object := range c.objects {
		t.Errorf("the object of %s, of %s, is left", key, object.Spec.ParentRef.Name)
	}
}

func TestObjectsAreThoseOfKubernetes(t *testing.T) {
	for key, family := range map[string]string{ip: "IPv4", "fd00::1": "IPv6"} {
		o := newObject(key, "default", "a")
		if o.Labels["ipaddress.kubernetes.io/ip-family"] != family || o.Labels["ipaddress.kubernetes.io/managed-by"] != servicerange.Manager ||
			*o.Spec.ParentRef != (networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: "a"}) {
			t.Errorf("%s: %+v", key, o)
		}
	}
}
