package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	"github.com/munnerz/goautoneg"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"svc.dev/svc/apiserver/filters/compression"
)

// InstallWithCustomResources is Install for the server of CustomResourceDefinitions:
// its documents are also those of the custom resources that are established. They are
// built when they are asked for, and version 3 documents are kept compressed: clients that
// accept gzip get them so.
func (d *Documents) InstallWithCustomResources(container *restful.Container, to serveMux, definitions apiextensionslisters.CustomResourceDefinitionLister) {
	custom := &custom{docs: d, definitions: definitions, hashes: map[string]definitionHash{}, kept: map[documentKey]document{}}
	static := sync.OnceValues(func() (*spec.Swagger, error) { return d.buildV2(container, Made) })
	to.Handle("/openapi/v2", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { custom.serveV2(w, r, static) }))
	d.installV3(container, Made, to, custom)
}

// serveMux is where handlers of documents are installed.
type serveMux interface {
	Handle(path string, handler http.Handler)
	HandlePrefix(path string, handler http.Handler)
}

// custom are the documents of custom resources.
type custom struct {
	docs        *Documents
	definitions apiextensionslisters.CustomResourceDefinitionLister

	mu     sync.Mutex
	hashes map[string]definitionHash // by the definition's name

	// buildingV2 is locked while the version 2 document is built, which takes long: it is
	// of all definitions. buildingV3 is locked while a version 3 document is built. One of
	// each is built at a time, since that takes much memory.
	buildingV2, buildingV3 sync.Mutex

	keptMu sync.Mutex
	kept   map[documentKey]document
}

// definitionHash is the hash of a definition's specification.
type definitionHash struct {
	uid        types.UID
	generation int64
	hash       [sha256.Size]byte
}

// customVersion is a group version of custom resources. Its hash is that of the
// specifications that its document is made of.
type customVersion struct {
	hash        string
	version     string
	definitions []*apiextensionsv1.CustomResourceDefinition // in the order of their names
}

// documentKey is the path of a group version below /openapi/v3/ and a media type.
type documentKey struct{ gv, mediaType string }

// document is a version 3 document.
type document struct {
	hash string
	gzip []byte
}

// versions returns the group versions that have established definitions, by their
// path below /openapi/v3/.
func (c *custom) versions() (map[string]*customVersion, error) {
	all, err := c.definitions.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *apiextensionsv1.CustomResourceDefinition) int { return strings.Compare(a.Name, b.Name) })
	versions, texts := map[string]*customVersion{}, map[string]*bytes.Buffer{}
	hashes := make(map[string]definitionHash, len(all))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, crd := range all {
		if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			continue
		}
		known, ok := c.hashes[crd.Name]
		if !ok || known.uid != crd.UID || known.generation != crd.Generation {
			if known, err = hashDefinition(crd); err != nil {
				return nil, err
			}
		}
		hashes[crd.Name] = known
		for _, v := range crd.Spec.Versions {
			if !v.Served {
				continue
			}
			gv := "apis/" + crd.Spec.Group + "/" + v.Name
			if versions[gv] == nil {
				versions[gv], texts[gv] = &customVersion{version: v.Name}, &bytes.Buffer{}
			}
			versions[gv].definitions = append(versions[gv].definitions, crd)
			fmt.Fprintln(texts[gv], crd.Name, hex.EncodeToString(known.hash[:]))
		}
	}
	c.hashes = hashes
	for gv, version := range versions {
		sum := sha256.Sum256(fmt.Appendln(texts[gv].Bytes(), gv, c.docs.version, libraries()))
		version.hash = hex.EncodeToString(sum[:])
	}
	return versions, nil
}

// hashDefinition returns the hash of what documents are made of: all of the
// specification but how objects are converted.
func hashDefinition(crd *apiextensionsv1.CustomResourceDefinition) (definitionHash, error) {
	spec := crd.Spec
	spec.Conversion = nil
	data, err := json.Marshal(spec)
	if err != nil {
		return definitionHash{}, err
	}
	return definitionHash{crd.UID, crd.Generation, sha256.Sum256(data)}, nil
}

// serveV2 serves the version 2 document, to the aggregator, which keeps it.
func (c *custom) serveV2(w http.ResponseWriter, r *http.Request, static func() (*spec.Swagger, error)) {
	versions, err := c.versions()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	sum := sha256.New()
	for _, gv := range slices.Sorted(maps.Keys(versions)) {
		fmt.Fprintln(sum, gv, versions[gv].hash)
	}
	etag := strconv.Quote(c.docs.version + "-" + hex.EncodeToString(sum.Sum(nil)))
	w.Header().Set("Etag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	c.buildingV2.Lock()
	defer c.buildingV2.Unlock()
	data, err := c.buildV2(versions, static)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	// An error means that the client has closed the connection.
	_, _ = w.Write(data)
}

func (c *custom) buildV2(versions map[string]*customVersion, static func() (*spec.Swagger, error)) ([]byte, error) {
	base, err := static()
	if err != nil {
		return nil, err
	}
	var docs []*spec.Swagger
	for _, gv := range slices.Sorted(maps.Keys(versions)) {
		for _, crd := range versions[gv].definitions {
			doc, err := builder.BuildOpenAPIV2(crd, versions[gv].version, builder.Options{V2: true, IncludeSelectableFields: true})
			if err != nil { // it must not hide the others
				klog.ErrorS(err, "Failed to build the OpenAPI version 2 document of a definition", "crd", klog.KObj(crd))
				continue
			}
			// Those of the base are pruned, too; different ones would be a conflict.
			doc.Definitions = handler.PruneDefaults(doc.Definitions)
			docs = append(docs, doc)
		}
	}
	merged, err := builder.MergeSpecs(base, docs...)
	if err != nil {
		return nil, err
	}
	return json.Marshal(merged)
}

const (
	protobufV3      = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	protobufV3Older = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

// serveV3 serves the version 3 document of a group version. The caller has checked the
// hash in the request.
func (c *custom) serveV3(w http.ResponseWriter, r *http.Request, gv string, version *customVersion) {
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	mediaType := goautoneg.Negotiate(accept, []string{runtime.ContentTypeJSON, protobufV3, protobufV3Older})
	if mediaType == "" {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	if mediaType == protobufV3Older {
		mediaType = protobufV3
	}
	w.Header().Set("Etag", strconv.Quote(version.hash))
	w.Header().Set("Vary", "Accept, Accept-Encoding")
	if r.Header.Get("If-None-Match") == strconv.Quote(version.hash) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	compressed, err := c.document(documentKey{gv, mediaType}, version)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if compression.AcceptsGzip(r.Header) {
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(compressed) // as below
		return
	}
	plain, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	// An error means that the client has closed the connection.
	_, _ = io.Copy(w, plain)
}

// document returns a document, compressed.
func (c *custom) document(key documentKey, version *customVersion) ([]byte, error) {
	if kept, ok := c.keptDocument(key, version); ok {
		return kept, nil
	}
	c.buildingV3.Lock()
	defer c.buildingV3.Unlock()
	if kept, ok := c.keptDocument(key, version); ok { // another request has built it
		return kept, nil
	}
	data, err := buildV3(version)
	if err == nil && key.mediaType == protobufV3 {
		data, err = handler3.ToV3ProtoBinary(data)
	}
	if err != nil {
		return nil, err
	}
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	if _, err := writer.Write(data); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	made := document{version.hash, bytes.Clone(compressed.Bytes())}
	c.keptMu.Lock()
	defer c.keptMu.Unlock()
	c.kept[key] = made
	return made.gzip, nil
}

// keptDocument returns a document, compressed, and reports whether it is built already.
func (c *custom) keptDocument(key documentKey, version *customVersion) ([]byte, bool) {
	c.keptMu.Lock()
	defer c.keptMu.Unlock()
	kept, ok := c.kept[key]
	return kept.gzip, ok && kept.hash == version.hash
}

// dropOthers drops documents of group versions that are not served any more.
func (c *custom) dropOthers(versions map[string]*customVersion) {
	c.keptMu.Lock()
	defer c.keptMu.Unlock()
	maps.DeleteFunc(c.kept, func(key documentKey, _ document) bool { return versions[key.gv] == nil })
}

func buildV3(version *customVersion) ([]byte, error) {
	var docs []*spec3.OpenAPI
	for _, crd := range version.definitions {
		doc, err := builder.BuildOpenAPIV3(crd, version.version, builder.Options{IncludeSelectableFields: true})
		if err != nil { // it must not hide the others
			klog.ErrorS(err, "Failed to build the OpenAPI version 3 document of a definition", "crd", klog.KObj(crd))
			continue
		}
		docs = append(docs, doc)
	}
	merged, err := builder.MergeSpecsV3(docs...)
	if err != nil {
		return nil, err
	}
	return json.Marshal(merged)
}
