package groupdomain

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/responsewriter"

	"svc.dev/svc/apiserver/filters/rewrite"
	"svc.dev/svc/internal/fleetaddress"
)

// serveDocument serves discovery and OpenAPI. Documents are in JSON.
func (f *filter) serveDocument(w http.ResponseWriter, req *http.Request, to route) {
	wire := req
	req = f.at(req, to)
	req.Header = req.Header.Clone()
	req.Header.Del("Accept-Encoding")
	if to.gv.Group == fleetaddress.Group && to.document != openAPIV3 {
		f.serveFleetDiscovery(w, to)
		return
	}
	switch to.document {
	case groupList:
		f.serveGroups(w, req)
		return
	case openAPIV2:
		req.Header.Set("Accept", runtime.ContentTypeJSON)
	default:
		req.Header["Accept"] = onlyJSON(req.Header["Accept"])
	}
	translate := map[document]func([]byte) ([]byte, error){
		group:         f.groupDocument,
		resourceList:  f.resourceList,
		openAPIV2:     f.openAPI,
		openAPIV3:     f.openAPI,
		openAPIV3List: f.openAPIList,
	}[to.document]
	f.serveWhole(w, req, wire, to, translate)
}

// serveFleetDiscovery serves the documents of the group of fleets, which tell no secret.
func (f *filter) serveFleetDiscovery(w http.ResponseWriter, to route) {
	var answer any = f.fleetGroup()
	if to.document == resourceList {
		answer = f.fleetResources()
	}
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_, _ = w.Write(body) // an error means that the client has gone
}

// serveWhole serves a document. wire is the request as it came.
func (f *filter) serveWhole(w http.ResponseWriter, req, wire *http.Request, to route, translate func([]byte) ([]byte, error)) {
	rewrite.Serve(w, req, f.next, func(out io.Writer, status int, header http.Header) rewrite.Body {
		if status >= http.StatusBadRequest {
			return f.failure(out, header, to, wire)
		}
		return whole(out, translate)
	})
}

// onlyJSON returns the clauses of an Accept header that are of JSON, or JSON.
func onlyJSON(accept []string) []string {
	var kept []string
	for _, value := range accept {
		for clause := range strings.SplitSeq(value, ",") {
			if strings.HasPrefix(strings.TrimSpace(clause), runtime.ContentTypeJSON) {
				kept = append(kept, clause)
			}
		}
	}
	if len(kept) == 0 {
		return []string{runtime.ContentTypeJSON}
	}
	return []string{strings.Join(kept, ",")}
}

// serveGroups serves the list of all groups, which the handler has in two parts: the
// core group is at /api.
func (f *filter) serveGroups(w http.ResponseWriter, req *http.Request) {
	req.Header["Accept"] = onlyJSON(req.Header["Accept"])
	etag := req.Header.Get("If-None-Match")
	req.Header.Del("If-None-Match")
	ofCore, others := f.fetch(req, "/api"), f.fetch(req, "/apis")
	maps.Copy(w.Header(), others.header)
	w.Header().Del("Content-Length")
	for _, p := range []part{ofCore, others} {
		if p.code != http.StatusOK {
			w.WriteHeader(p.code)
			_, _ = w.Write(p.body) // an error means that the client has gone
			return
		}
	}
	merge := f.mergeGroups
	if strings.Contains(others.header.Get("Content-Type"), "as=APIGroupDiscoveryList") {
		merge = f.mergeDiscovery
	}
	body, err := merge(ofCore.body, others.body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if own := others.header.Get("Etag"); own != "" {
		own = `"` + strings.Trim(ofCore.header.Get("Etag"), `"`) + "-" + strings.Trim(own, `"`) + `"`
		w.Header().Set("Etag", own)
		if own == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	_, _ = w.Write(body) // as above
}

// part is a response of the handler.
type part struct {
	code   int
	header http.Header
	body   []byte
}

// fetch returns the response of the handler to the request at another path.
func (f *filter) fetch(req *http.Request, path string) part {
	w := responsewriter.NewInMemoryResponseWriter()
	f.next.ServeHTTP(w, f.at(req, route{path: path}))
	return part{w.RespCode(), w.Header(), w.Data()}
}

// mergeGroups returns the APIGroupList of the core group's versions and of all other
// groups.
func (f *filter) mergeGroups(coreBody, others []byte) ([]byte, error) {
	first, err := f.coreGroup(coreBody)
	if err != nil {
		return nil, err
	}
	var list metav1.APIGroupList
	if err := json.Unmarshal(others, &list); err != nil {
		return nil, err
	}
	for i := range list.Groups {
		f.nameGroup(&list.Groups[i])
	}
	list.Groups = append(slices.Insert(list.Groups, 0, *first), f.fleetGroup())
	return json.Marshal(list)
}

// fleetGroup returns the group of fleets, which the handler does not know.
func (f *filter) fleetGroup() metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{
		GroupVersion: schema.GroupVersion{Group: f.Names.FleetGroup(), Version: fleetaddress.Version}.String(), Version: fleetaddress.Version,
	}
	return metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"},
		Name:     f.Names.FleetGroup(), Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
}

// fleetResources returns the resources of the group of fleets: the fleet's own address
// is a subresource, so that roles can name it.
func (f *filter) fleetResources() metav1.APIResourceList {
	return metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: schema.GroupVersion{Group: f.Names.FleetGroup(), Version: fleetaddress.Version}.String(),
		APIResources: []metav1.APIResource{{
			Name: fleetaddress.Resource + "/proxy", Kind: "FleetProxyOptions", Verbs: metav1.Verbs{"create", "delete", "get", "patch", "update"},
		}},
	}
}

// coreGroup returns the core group's versions as a group.
func (f *filter) coreGroup(body []byte) (*metav1.APIGroup, error) {
	var versions metav1.APIVersions
	if err := json.Unmarshal(body, &versions); err != nil {
		return nil, err
	}
	made := &metav1.APIGroup{}
	for _, version := range versions.Versions {
		made.Versions = append(made.Versions, metav1.GroupVersionForDiscovery{GroupVersion: version, Version: version})
	}
	if len(made.Versions) > 0 {
		made.PreferredVersion = made.Versions[0]
	}
	f.nameGroup(made)
	return made, nil
}

// nameGroup translates the names in a group.
func (f *filter) nameGroup(g *metav1.APIGroup) {
	public := f.Names.toWire()
	g.Name = public.group(g.Name)
	for i := range g.Versions {
		g.Versions[i].GroupVersion = public.apiVersion(g.Versions[i].GroupVersion)
	}
	g.PreferredVersion.GroupVersion = public.apiVersion(g.PreferredVersion.GroupVersion)
}

// groupDocument translates the document of one group: an APIGroup, or the APIVersions
// of the core group.
func (f *filter) groupDocument(body []byte) ([]byte, error) {
	var made metav1.APIGroup
	if err := json.Unmarshal(body, &made); err != nil {
		return nil, err
	}
	if made.Kind != "APIVersions" {
		f.nameGroup(&made)
		return json.Marshal(made)
	}
	coreGroup, err := f.coreGroup(body)
	if err != nil {
		return nil, err
	}
	coreGroup.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return json.Marshal(coreGroup)
}

// resourceList translates the list of the resources of a group version.
func (f *filter) resourceList(body []byte) ([]byte, error) {
	public := f.Names.toWire()
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	if list.GroupVersion == "v1" {
		list.APIResources = slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool { return f.ofHost(r.Name) })
	}
	for i := range list.APIResources {
		// Without a group, a resource is of the list's; a version comes with a group.
		if r := &list.APIResources[i]; r.Group != "" || r.Version != "" {
			r.Group = public.group(r.Group)
		}
	}
	list.GroupVersion = public.apiVersion(list.GroupVersion)
	return json.Marshal(list)
}

// ofHost reports whether a resource or subresource of the core group is served by the
// host only.
func (f *filter) ofHost(name string) bool {
	name, _, _ = strings.Cut(name, "/")
	return name == namespaces
}

// mergeDiscovery returns the aggregated discovery of the core group and of all others.
func (f *filter) mergeDiscovery(coreBody, others []byte) ([]byte, error) {
	var all, rest apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(coreBody, &all); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(others, &rest); err != nil {
		return nil, err
	}
	all.Items = append(all.Items, rest.Items...)
	for i := range all.Items {
		f.nameDiscovery(&all.Items[i])
	}
	all.Items = append(all.Items, apidiscoveryv2.APIGroupDiscovery{
		ObjectMeta: metav1.ObjectMeta{Name: f.Names.FleetGroup()},
		Versions:   []apidiscoveryv2.APIVersionDiscovery{{Version: fleetaddress.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}},
	})
	return json.Marshal(all)
}

// nameDiscovery translates the names in the discovery of a group.
func (f *filter) nameDiscovery(g *apidiscoveryv2.APIGroupDiscovery) {
	name := func(kind *metav1.GroupVersionKind) {
		if kind != nil && kind.Kind != "" {
			kind.Group = f.Names.toWire().kindGroup(schema.GroupVersionKind(*kind))
		}
	}
	if g.Name == "" {
		for i := range g.Versions {
			v := &g.Versions[i]
			v.Resources = slices.DeleteFunc(v.Resources, func(r apidiscoveryv2.APIResourceDiscovery) bool { return f.ofHost(r.Resource) })
		}
	}
	g.Name = f.Names.Public(g.Name)
	for i := range g.Versions {
		for j := range g.Versions[i].Resources {
			r := &g.Versions[i].Resources[j]
			name(r.ResponseKind)
			for k := range r.Subresources {
				name(r.Subresources[k].ResponseKind)
			}
		}
	}
}
