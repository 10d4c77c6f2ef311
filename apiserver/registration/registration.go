// Package registration owns the APIServices by which a host forwards requests for the
// groups of a group domain.
package registration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"svc.dev/svc/apis"
	"svc.dev/svc/apiserver/groupdomain"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/fleetaddress"
)

const (
	// groupPriority is less than that of each group of a host, so that short names, as
	// kubectl get pods, stay those of the host.
	groupPriority = 100
	// topVersionPriority is that of a group's first version.
	topVersionPriority = 15
)

// Groups are the groups of a domain.
type Groups struct {
	// Names translates the names of groups.
	Names *groupdomain.Names
	// Versions are the group versions that a release serves, in the domain's names and
	// sorted by group, the preferred version first.
	Versions []schema.GroupVersion
}

// New returns the groups that a release serves in a domain by default.
func New(r release.Release, domain string) (*Groups, error) {
	kinds := apis.Kinds()
	served, err := release.NewServed(r, nil, kinds, apiextensionsv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	stored := sets.New(apiextensionsv1.SchemeGroupVersion)
	for _, kind := range kinds {
		if kind.Hub.Group == metricsv1beta1.GroupName {
			continue // served with --resource-metrics only
		}
		for _, gvk := range served.Versions(kind) {
			stored.Insert(gvk.GroupVersion())
		}
	}
	names, err := groupdomain.New(domain)
	if err != nil {
		return nil, err
	}
	g := &Groups{Names: names, Versions: []schema.GroupVersion{{Group: names.FleetGroup(), Version: fleetaddress.Version}}}
	for gv := range stored {
		g.Versions = append(g.Versions, schema.GroupVersion{Group: names.Public(gv.Group), Version: gv.Version})
	}
	slices.SortFunc(g.Versions, func(a, b schema.GroupVersion) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), version.CompareKubeAwareVersionStrings(b.Version, a.Version))
	})
	return g, nil
}

// APIServices returns the APIServices of all groups, served by a Service of the host at
// port 443. The server writes their caBundle (package hostcerts).
func (g *Groups) APIServices(service types.NamespacedName) []*apiregistrationv1.APIService {
	var services []*apiregistrationv1.APIService
	priority := int32(topVersionPriority)
	for i, gv := range g.Versions {
		if priority--; i == 0 || g.Versions[i-1].Group != gv.Group {
			priority = topVersionPriority
		}
		services = append(services, &apiregistrationv1.APIService{
			TypeMeta:   metav1.TypeMeta{APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService"},
			ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: groupPriority, VersionPriority: priority,
				Service: &apiregistrationv1.ServiceReference{Namespace: service.Namespace, Name: service.Name},
			},
		})
	}
	return services
}

// CheckOwn returns an error if a host has APIServices of the same groups that do not lead to
// a Service: groups of the host's own definitions or of other servers, which a domain must
// not shadow. It only reads.
func (g *Groups) CheckOwn(ctx context.Context, host aggregator.Interface, service types.NamespacedName) error {
	list, err := host.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the APIServices of the host: %w", err)
	}
	groups := sets.New[string]()
	for _, gv := range g.Versions {
		groups.Insert(gv.Group)
	}
	for _, found := range list.Items {
		if !groups.Has(found.Spec.Group) || leadsTo(found, service) {
			continue
		}
		by := "the host itself"
		if to := found.Spec.Service; to != nil {
			by = fmt.Sprintf("the Service %s/%s", to.Namespace, to.Name)
		}
		return fmt.Errorf("%s is served by %s already (APIService %s); choose a domain whose groups nothing else serves, or delete that APIService", found.Spec.Group, by, found.Name)
	}
	return nil
}

// Registered returns the APIServices of a domain's groups at a host that lead to the servers
// of the domain: to the Service of the group of fleets, which is the last of them, so that an
// interrupted removal can be repeated. If that group is gone, it is the Service to which all
// built-in groups of the domain lead; if they lead to several, Registered returns an error that
// names them. What the host or other servers serve in the domain, such as those of a domain
// inside it, is none of them.
func Registered(ctx context.Context, host aggregator.Interface, domain string) ([]apiregistrationv1.APIService, error) {
	names, err := groupdomain.New(domain)
	if err != nil {
		return nil, err
	}
	list, err := host.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the APIServices of the host: %w", err)
	}
	named := naming(list.Items, names)
	if len(named) == 0 {
		return nil, nil
	}
	last := named[0]
	own := types.NamespacedName{Namespace: last.Spec.Service.Namespace, Name: last.Spec.Service.Name}
	if slices.ContainsFunc(named, func(service apiregistrationv1.APIService) bool { return !leadsTo(service, own) }) {
		var each []string
		for _, service := range named {
			each = append(each, fmt.Sprintf("%s to %s/%s", service.Name, service.Spec.Service.Namespace, service.Spec.Service.Name))
		}
		return nil, fmt.Errorf("%s.%s is missing, and the other APIServices of %s lead to different Services: %s; delete those of the fleet by their names: kubectl delete apiservice NAME",
			fleetaddress.Version, names.FleetGroup(), domain, strings.Join(each, ", "))
	}
	services := slices.DeleteFunc(list.Items, func(service apiregistrationv1.APIService) bool {
		return service.Name == last.Name || !leadsTo(service, own) || !names.Owns(service.Spec.Group)
	})
	return append(services, last), nil
}

// naming returns the APIServices that name the Service of a domain's servers: that of the group
// of fleets or, without it, those of the built-in groups.
func naming(all []apiregistrationv1.APIService, names *groupdomain.Names) []apiregistrationv1.APIService {
	builtIn := sets.New[string]()
	for _, kind := range apis.Kinds() {
		for _, gvk := range kind.GVKs() {
			builtIn.Insert(names.Public(gvk.Group))
		}
	}
	var found []apiregistrationv1.APIService
	for _, service := range all {
		switch {
		case service.Spec.Service == nil:
		case service.Name == fleetaddress.Version+"."+names.FleetGroup():
			return []apiregistrationv1.APIService{service}
		case builtIn.Has(service.Spec.Group):
			found = append(found, service)
		}
	}
	return found
}

// leadsTo reports whether a host forwards the requests of an APIService to a Service.
func leadsTo(service apiregistrationv1.APIService, to types.NamespacedName) bool {
	s := service.Spec.Service
	return s != nil && s.Namespace == to.Namespace && s.Name == to.Name
}

// answerTimeout is how long the servers of a domain may take to answer. Those that the
// host does not reach take the whole time.
const answerTimeout = 10 * time.Second

// Answering returns the names of those of a host's APIServices whose servers answer a
// request for their discovery document now, through the host.
func Answering(ctx context.Context, host aggregator.Interface, services []apiregistrationv1.APIService) []string {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answers := make([]bool, len(services))
	var group sync.WaitGroup
	for i, service := range services {
		group.Go(func() {
			path := "/apis/" + service.Spec.Group + "/" + service.Spec.Version
			answers[i] = host.Discovery().RESTClient().Get().AbsPath(path).MaxRetries(0).Do(ctx).Error() == nil
		})
	}
	group.Wait()
	var names []string
	for i, service := range services {
		if answers[i] {
			names = append(names, service.Name)
		}
	}
	return names
}

// Remove deletes APIServices from a host, and returns the names of those that it has
// deleted: without those that are gone already, or are others by now.
func Remove(ctx context.Context, host aggregator.Interface, services []apiregistrationv1.APIService) ([]string, error) {
	var removed []string
	for _, service := range services {
		condition := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &service.UID}}
		err := host.ApiregistrationV1().APIServices().Delete(ctx, service.Name, condition)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return removed, fmt.Errorf("delete APIService %s: %w", service.Name, err)
		}
		removed = append(removed, service.Name)
	}
	return removed, nil
}
