// Package admissiontest runs an admission plugin in a test as the API server runs
// it: initialized by the library, with informers, on typed requests.
package admissiontest

import (
	"context"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

// Server is what a plugin needs of an API server.
type Server struct {
	// Objects are those that the informers have.
	Objects []runtime.Object
	// Authorizer decides what users may do.
	Authorizer authorizer.Authorizer
	// RESTMapper maps kinds to resources.
	RESTMapper meta.RESTMapper
	// Config is the plugin's configuration file; nil is no file.
	Config io.Reader
	// Initializers come after the library's.
	Initializers []admission.PluginInitializer
}

// Plugin is a plugin that is ready for requests.
type Plugin struct {
	admission.Interface
	// Client is the server's; its writes reach the informers.
	Client *fake.Clientset
}

// Start makes the plugin that register registers, and its informers, and waits
// until they have synced.
func (s Server) Start(t testing.TB, register func(*admission.Plugins)) *Plugin {
	t.Helper()
	p, err := s.TryStart(t, register)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TryStart is Start for a configuration that may be invalid.
func (s Server) TryStart(t testing.TB, register func(*admission.Plugins)) (*Plugin, error) {
	t.Helper()
	client := fake.NewClientset(s.Objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugins := admission.NewPlugins()
	register(plugins)
	chain := admission.PluginInitializers{
		initializer.New(client, nil, factory, s.Authorizer, nil, nil, t.Context().Done(), s.RESTMapper),
	}
	made, err := plugins.InitPlugin(plugins.Registered()[0], s.Config, append(chain, s.Initializers...))
	if err != nil {
		return nil, err
	}
	factory.StartWithContext(t.Context())
	t.Cleanup(factory.Shutdown)
	factory.WaitForCacheSyncWithContext(t.Context())
	return &Plugin{Interface: made, Client: client}, nil
}

// Request is a request to create Object or, if there is an Old one, to update it.
// If there is only an Old one, it is a request to delete it.
type Request struct {
	Object, Old runtime.Object
	Subresource string
	User        user.Info
	DryRun      bool
}

// Attributes returns the request as plugins see it.
func (r Request) Attributes(t testing.TB) admission.Attributes {
	t.Helper()
	operation, object := admission.Create, r.Object
	switch {
	case r.Object == nil:
		operation, object = admission.Delete, r.Old
	case r.Old != nil:
		operation = admission.Update
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		t.Fatal(err)
	}
	o, err := meta.Accessor(object)
	if err != nil {
		t.Fatal(err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	if _, ok := object.(*corev1.Endpoints); ok {
		resource.Resource = "endpoints"
	}
	if r.User == nil {
		r.User = &user.DefaultInfo{Name: "alice"}
	}
	return admission.NewAttributesRecord(r.Object, r.Old, kinds[0], o.GetNamespace(), o.GetName(), resource, r.Subresource, operation, nil, r.DryRun, r.User)
}

// Send runs the plugin on a request: first the changes, then the validation, each
// if the plugin handles the operation.
func (p *Plugin) Send(t testing.TB, r Request) error {
	t.Helper()
	return p.Handle(t.Context(), r.Attributes(t))
}

// Handle is Send of the attributes of a request.
func (p *Plugin) Handle(ctx context.Context, a admission.Attributes) error {
	if !p.Handles(a.GetOperation()) {
		return nil
	}
	if mutates, ok := p.Interface.(admission.MutationInterface); ok {
		if err := mutates.Admit(ctx, a, objects()); err != nil {
			return err
		}
	}
	if validates, ok := p.Interface.(admission.ValidationInterface); ok {
		return validates.Validate(ctx, a, objects())
	}
	return nil
}

func objects() admission.ObjectInterfaces {
	return admission.NewObjectInterfacesFromScheme(scheme.Scheme)
}

// Pod returns a pod with a container of an image, in the namespace ns.
func Pod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "ns", "pod"
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "image"}}
	for _, do := range change {
		do(pod)
	}
	return pod
}

// Namespace returns a namespace with annotations or labels that change sets.
func Namespace(name string, change ...func(*corev1.Namespace)) *corev1.Namespace {
	ns := &corev1.Namespace{}
	ns.Name = name
	for _, do := range change {
		do(ns)
	}
	return ns
}
