package e2e

import (
	"encoding/base64"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// named is a refusal and the rule that it shows.
type named struct {
	name string
	refusal
}

func post(path, contentType, body string) request {
	return request{method: http.MethodPost, path: path, contentType: contentType, body: body}
}

func put(path, body string) request {
	return request{method: http.MethodPut, path: path, contentType: jsonType, body: body}
}

func patch(contentType, body string) request {
	return request{method: http.MethodPatch, path: kept + "?fieldManager=e2e", contentType: contentType, body: body}
}

func list(query string) request {
	return request{method: http.MethodGet, path: configMaps + "?" + query}
}

func remove(query, body string) request {
	return request{method: http.MethodDelete, path: kept + query, contentType: jsonType, body: body}
}

func badRequest(name string, r request, message string) named {
	return named{name, refusal{r, 400, metav1.StatusReasonBadRequest, message}}
}

func invalid(name string, r request, message string) named {
	return named{name, refusal{r, 422, metav1.StatusReasonInvalid, message}}
}

var unreadableBodies = []named{
	badRequest("nothing", post(configMaps, jsonType, ""), ""),
	badRequest("half a JSON object", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap",`), "unexpected end of JSON input"),
	badRequest("text that is not JSON", post(configMaps, jsonType, `hello`), "json parse error"),
	badRequest("a JSON list", post(configMaps, jsonType, `[1,2]`), "cannot unmarshal array"),
	badRequest("a JSON string", post(configMaps, jsonType, `"ConfigMap"`), "cannot unmarshal string"),
	invalid("null, which is an object without fields", post(configMaps, jsonType, `null`), "name or generateName is required"),
	badRequest("something after the JSON object", post(configMaps, jsonType, configMap("x")+"}"), "invalid character '}' after top-level value"),
	badRequest("broken YAML", post(configMaps, yamlType, "apiVersion: [v1"), "yaml"),
	badRequest("a YAML document that expands without end", post(configMaps, yamlType, "a: &a [x,x,x,x,x,x,x,x,x]\n"+yamlBomb(9)), "excessive aliasing"),
	badRequest("bytes that are not protobuf", post(configMaps, protobufType, "garbage"), "does not appear to be a protobuf message"),
	badRequest("protobuf that is cut off", post(configMaps, protobufType, protobuf("v1", "ConfigMap", []byte{0x0a, 0x7f, 0x01})), "unexpected EOF"),
	badRequest("protobuf with a length beyond all bounds", post(configMaps, protobufType, "k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), ""),
	badRequest("a compressed body, which is not announced as such", post(configMaps, jsonType, gzipped(configMap("x"))), "invalid character"),
	badRequest("half a JSON object on update", put(kept, `{"apiVersion":"v1"`), "unexpected end of JSON input"),
}

var otherKinds = []named{
	badRequest("another kind", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}`), "Secret in version \"v1\" cannot be handled as a ConfigMap"),
	badRequest("another kind in protobuf", post(configMaps, protobufType, protobuf("v1", "Secret", bytesField(1, bytesField(1, []byte("x"))))), "cannot be handled as a ConfigMap"),
	badRequest("a version that does not exist", post(configMaps, jsonType, `{"apiVersion":"v7","kind":"ConfigMap","metadata":{"name":"x"}}`), "v7"),
	badRequest("a group that does not exist", post(configMaps, jsonType, `{"apiVersion":"example.org/v1","kind":"ConfigMap","metadata":{"name":"x"}}`), "example.org/v1"),
	badRequest("an apiVersion that is none", post(configMaps, jsonType, `{"apiVersion":"a/b/c","kind":"ConfigMap","metadata":{"name":"x"}}`), "a/b/c"),
	badRequest("a kind that does not exist", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"Unicorn","metadata":{"name":"x"}}`), "Unicorn"),
	badRequest("a list", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMapList","items":[]}`), "cannot be handled as a ConfigMap"),
	badRequest("a kind that is a number", post(configMaps, jsonType, `{"apiVersion":"v1","kind":7}`), "cannot unmarshal number"),
	badRequest("another kind on update", put(kept, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"kept"}}`), "cannot be handled as a ConfigMap"),
	badRequest("another kind in apply", patch(applyType, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"kept"}}`), "Secret"),
	badRequest("no type in apply", patch(applyType, `{"metadata":{"name":"kept"}}`), "invalid object type"),
}

var wrongFields = []named{
	badRequest("a number where an object belongs", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":5}`), "cannot unmarshal number into Go struct field ConfigMap.data"),
	badRequest("a number where a string belongs", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":5}}`), "cannot unmarshal number"),
	badRequest("a string where a number belongs", post(deployment, jsonType, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{"replicas":"two"}}`), "replicas"),
	badRequest("a number too large for its field", post(deployment, jsonType, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{"replicas":99999999999}}`), "replicas"),
	badRequest("binary data that is not base64", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"binaryData":{"a":"%%"}}`), "illegal base64"),
	badRequest("a time that is none", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","deletionTimestamp":"yesterday"}}`), "yesterday"),
	badRequest("a quantity that is none", post(pods, jsonType, podWith(`,"resources":{"limits":{"cpu":"ten"}}`)), "quantities must match the regular expression"),
	badRequest("a quantity with an enormous exponent", post(pods, jsonType, podWith(`,"resources":{"limits":{"cpu":"1e999999999"},"requests":{"cpu":"1"}}`)), "spec.containers[0].resources.limits.cpu: quantity \"1e999999999\": the exponent may have at most four digits"),
	badRequest("a quantity with an enormous negative exponent", post(pods, yamlType, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: b, resources: {limits: {cpu: \"1\\x65-999999999\"}}}]}}"), "the exponent may have at most four digits"),
	invalid("a negative quantity", post(pods, jsonType, podWith(`,"resources":{"limits":{"cpu":"-1"}}`)), `spec.containers[0].resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0`),
	invalid("no name", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap"}`), "name or generateName is required"),
	invalid("a name with capitals", post(configMaps, jsonType, configMap("Bad_Name")), `metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain must consist of`),
	invalid("a name that is a path", post(configMaps, jsonType, configMap("../../etc")), "metadata.name: Invalid value"),
	invalid("a name that is too long", post(configMaps, jsonType, configMap(strings.Repeat("a", 254))), "must be no more than 253"),
	invalid("a name with NUL", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a\u0000b"}}`), "metadata.name: Invalid value"),
	invalid("a label key that is none", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a b":"c"}}}`), "metadata.labels: Invalid value: \"a b\": name part must consist of"),
	invalid("a label value that is too long", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":"`+strings.Repeat("c", 64)+`"}}}`), "metadata.labels: Invalid value"),
	invalid("an annotation that is too large", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","annotations":{"a":"`+strings.Repeat("c", 256<<10)+`"}}}`), "metadata.annotations: Too long"),
	invalid("a finalizer without a domain", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","finalizers":["a b"]}}`), "metadata.finalizers"),
	invalid("an owner without a uid", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a"}]}}`), "metadata.ownerReferences[0].uid: Required value"),
	invalid("a data key that is none", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a/b":"c"}}`), "data[a/b]: Invalid value"),
	invalid("a required field left out", post(pods, jsonType, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{}}`), "spec.containers: Required value"),
	invalid("a value that is none of the allowed", post(pods, jsonType, podWith(`,"imagePullPolicy":"Sometimes"`)), `spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes"`),
	invalid("a label selector with an operator that is none", post(deployment, jsonType, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"Near"}]},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}}`), "Near"),
	{"what exists already", refusal{post(configMaps, jsonType, configMap("kept")), 409, metav1.StatusReasonAlreadyExists, `configmaps "kept" already exists`}},
}

var contradictions = []named{
	badRequest("another name", put(kept, configMap("other")), "the name of the object (other) does not match the name on the URL (kept)"),
	badRequest("another namespace on create", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"default"}}`), "the namespace of the provided object does not match the namespace sent on the request"),
	badRequest("another namespace on update", put(kept, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","namespace":"default"}}`), "the namespace of the provided object does not match the namespace sent on the request"),
	badRequest("another name in apply", patch(applyType, configMap("other")), "the name of the object (other) does not match the name on the URL (kept)"),
	{"a namespace that does not exist", refusal{post("/api/v1/namespaces/nowhere/configmaps", jsonType, configMap("x")), 404, metav1.StatusReasonNotFound, `namespaces "nowhere" not found`}},
	{"an update of what does not exist", refusal{put(configMaps+"/nothing", configMap("nothing")), 404, metav1.StatusReasonNotFound, `configmaps "nothing" not found`}},
	{"a patch of what does not exist", refusal{request{method: http.MethodPatch, path: configMaps + "/nothing", contentType: mergePatch, body: "{}"}, 404, metav1.StatusReasonNotFound, `configmaps "nothing" not found`}},
}

var badPatches = []named{
	badRequest("a JSON patch that is no list", patch(jsonPatch, `{"op":"add"}`), ""),
	badRequest("half a merge patch", patch(mergePatch, `{"data":`), "invalid JSON patch"),
	badRequest("half a strategic merge patch", patch(strategicType, `{"data":`), ""),
	badRequest("broken YAML in apply", patch(applyType, "data: ["), "yaml"),
	badRequest("a wrong type in apply", patch(applyType, `{"apiVersion":"v1","kind":"ConfigMap","data":5}`), ".data"),
	badRequest("managed fields in apply", patch(applyType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"managedFields":[{"manager":"x"}]}}`), "metadata.managedFields must be nil"),
	badRequest("a wrong type by merge patch", patch(mergePatch, `{"data":5}`), "cannot unmarshal number"),
	badRequest("a merge patch that is no object", patch(mergePatch, `[1]`), ""),
	invalid("an operation that does not exist", patch(jsonPatch, `[{"op":"shout","path":"/data"}]`), ""),
	invalid("a path that does not exist", patch(jsonPatch, `[{"op":"remove","path":"/data/nothing"}]`), `operation 0 of the patch, remove "/data/nothing", failed`),
	invalid("a test that fails", patch(jsonPatch, `[{"op":"replace","path":"/data/sky","value":"red"},{"op":"test","path":"/data/sky","value":"green"}]`), `operation 1 of the patch, test "/data/sky", failed`),
	{"more operations than are allowed", refusal{patch(jsonPatch, "["+strings.Repeat(`{"op":"add","path":"/data/a","value":"b"},`, 10001)+`{"op":"add","path":"/data/a","value":"b"}]`), 413, metav1.StatusReasonRequestEntityTooLarge, "10000"}},
	invalid("a change of the name", patch(mergePatch, `{"metadata":{"uid":"11111111-2222-3333-4444-555555555555","labels":{"a b":"c"}}}`), "metadata"),
	invalid("an apply without a field manager", request{method: http.MethodPatch, path: kept, contentType: applyType, body: configMap("kept")}, "fieldManager: Required value: is required for apply patch"),
	invalid("force without apply", request{method: http.MethodPatch, path: kept + "?force=true", contentType: mergePatch, body: `{"data":{"sky":"red"}}`}, "force: Forbidden: may not be specified for non-apply patch"),
	{"an apply of a stale version", refusal{request{method: http.MethodPatch, path: kept + "?fieldManager=e2e&force=true", contentType: applyType, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"1"},"data":{"sky":"red"}}`}, 409, metav1.StatusReasonConflict, "the object has been modified"}},
}

var badQueries = []named{
	badRequest("a limit that is no number", list("limit=many"), "many"),
	badRequest("a continue token that is none", list("limit=1&continue=nonsense"), "continue key is not valid"),
	badRequest("a continue token and a version", list("limit=1&resourceVersion=5&continue="+base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":5,"start":"a\u0000"}`))), "specifying resource version is not allowed when using continue"),
	badRequest("a version that is no number on list", list("resourceVersion=new"), "new"),
	badRequest("a version that is no number on watch", list("watch=1&resourceVersion=new"), "new"),
	badRequest("a version that is no number on get", request{method: http.MethodGet, path: kept + "?resourceVersion=new"}, "new"),
	badRequest("a timeout that is none", post(configMaps+"?timeout=soon", jsonType, configMap("x")), "timeout"),
	badRequest("a label selector that is none", list("labelSelector=a%20in%20("), "unable to parse requirement"),
	badRequest("a field selector that is none", list("fieldSelector=metadata.name"), "invalid selector"),
	badRequest("a field selector that the kind does not know", list("fieldSelector=spec.colour%3Dred"), "field label not supported: spec.colour"),
	badRequest("a watch timeout that is no number", list("watch=1&timeoutSeconds=soon"), "soon"),
	invalid("a match of versions without a version", list("resourceVersionMatch=Exact"), "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
	invalid("a match of versions that does not exist", list("resourceVersion=5&resourceVersionMatch=Roughly"), `resourceVersionMatch: Unsupported value: "Roughly"`),
	invalid("an exact match of any version", list("resourceVersion=0&resourceVersionMatch=Exact"), "resourceVersionMatch"),
	invalid("initial events, which are off", list("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), "sendInitialEvents: Forbidden"),
	invalid("a dry run that does not exist", post(configMaps+"?dryRun=Some", jsonType, configMap("x")), `dryRun: Unsupported value: ["Some"]`),
	invalid("a level of validation that does not exist", post(configMaps+"?fieldValidation=Maybe", jsonType, configMap("x")), `fieldValidation: Unsupported value: "Maybe"`),
	invalid("a field manager that is too long", post(configMaps+"?fieldManager="+strings.Repeat("a", 129), jsonType, configMap("x")), "fieldManager: Too long"),
	{"a version of the future", refusal{list("resourceVersion=999999999999999"), 504, metav1.StatusReasonTimeout, "Too large resource version"}},
}

var badDeletions = []named{
	badRequest("half a body", remove("", `{"kind":`), "unexpected end of JSON input"),
	badRequest("options of another kind", remove("", configMap("kept")), `no kind "ConfigMap" is registered`),
	invalid("a propagation that does not exist", remove("?propagationPolicy=Sideways", ""), `propagationPolicy`),
	invalid("orphans and propagation at once", remove("", `{"kind":"DeleteOptions","apiVersion":"v1","orphanDependents":true,"propagationPolicy":"Foreground"}`), "orphanDependents and deletionPropagation cannot be both set"),
	{"another object's uid", refusal{remove("", `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"11111111-2222-3333-4444-555555555555"}}`), 409, metav1.StatusReasonConflict, "UID in the precondition"}},
	{"another version", refusal{remove("", `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"1"}}`), 409, metav1.StatusReasonConflict, "ResourceVersion in the precondition"}},
	badRequest("a grace period that is no number", remove("?gracePeriodSeconds=soon", ""), "soon"),
	{"what does not exist", refusal{request{method: http.MethodDelete, path: configMaps + "/nothing"}, 404, metav1.StatusReasonNotFound, `configmaps "nothing" not found`}},
	badRequest("of a collection with a selector that is none", request{method: http.MethodDelete, path: configMaps + "?labelSelector=a%20in%20("}, "unable to parse requirement"),
}

var wrongContentTypes = []named{
	{"text", refusal{post(configMaps, "text/plain", configMap("x")), 415, metav1.StatusReasonUnsupportedMediaType, "the body of the request was in an unknown format"}},
	{"a content type that is none", refusal{post(configMaps, "///", configMap("x")), 415, metav1.StatusReasonUnsupportedMediaType, ""}},
	{"JSON in a patch", refusal{patch(jsonType, `{"data":{"sky":"red"}}`), 415, metav1.StatusReasonUnsupportedMediaType, "Unsupported Media Type"}},
	{"a patch in a create", refusal{post(configMaps, mergePatch, configMap("x")), 415, metav1.StatusReasonUnsupportedMediaType, ""}},
	{"HTML as the answer", refusal{request{method: http.MethodGet, path: kept, accept: "text/html"}, 406, metav1.StatusReasonNotAcceptable, "Available representations: application/json"}},
	{"a table of another group as the answer", refusal{request{method: http.MethodGet, path: kept, accept: "application/json;as=Table;g=example.com;v=v1"}, 406, metav1.StatusReasonNotAcceptable, ""}},
}

var wrongPaths = []named{
	{"a resource that does not exist", refusal{request{method: http.MethodGet, path: "/api/v1/unicorns"}, 404, metav1.StatusReasonNotFound, "the server could not find the requested resource"}},
	{"a subresource that does not exist", refusal{request{method: http.MethodGet, path: kept + "/status"}, 404, metav1.StatusReasonNotFound, ""}},
	{"a create with a name in the path", refusal{post(kept, jsonType, configMap("kept")), 405, metav1.StatusReasonMethodNotAllowed, ""}},
	{"an update of a collection", refusal{put(configMaps, configMap("kept")), 405, metav1.StatusReasonMethodNotAllowed, ""}},
	{"a method that does not exist", refusal{request{method: "SHOUT", path: kept}, 405, metav1.StatusReasonMethodNotAllowed, ""}},
}

var excesses = []named{
	{"a body of more than 3 MiB", refusal{post(configMaps, jsonType, configMapOf(3<<20)), 413, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728"}},
	{"a body of more than 3 MiB in YAML", refusal{post(configMaps, yamlType, configMapOf(4<<20)), 413, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728"}},
	{"a body of much more", refusal{put(kept, configMapOf(32<<20)), 413, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728"}},
	{"a patch of more than 3 MiB", refusal{patch(mergePatch, configMapOf(3<<20)), 413, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728"}},
	invalid("data of more than 1 MiB", post(configMaps, jsonType, configMapOf(2<<20)), "Too long"),
	badRequest("objects nested without end", post(configMaps, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":`+strings.Repeat(`{"a":`, 200_000)+"1"+strings.Repeat("}", 200_000)+"}"), "exceeded max depth"),
	badRequest("lists nested without end", post(configMaps, jsonType, strings.Repeat("[", 500_000)), "exceeded max depth"),
	badRequest("YAML nested without end", post(configMaps, yamlType, "a: "+strings.Repeat("[", 100_000)), "yaml"),
	badRequest("a merge patch nested without end", patch(mergePatch, strings.Repeat(`{"a":`, 200_000)+"1"+strings.Repeat("}", 200_000)), ""),
	badRequest("an apply nested without end", patch(applyType, `{"apiVersion":"v1","kind":"ConfigMap","data":`+strings.Repeat(`{"a":`, 100_000)+"1"+strings.Repeat("}", 100_000)+"}"), ""),
}

// configMapOf is a ConfigMap with that many bytes of data.
func configMapOf(size int) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"a":"` + strings.Repeat("x", size) + `"}}`
}

// yamlBomb defines aliases of which each holds the one before nine times.
func yamlBomb(levels int) string {
	var out strings.Builder
	name := 'a'
	for range levels {
		out.WriteString(string(name+1) + ": &" + string(name+1) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(name)+",", 9), ",") + "]\n")
		name++
	}
	return out.String()
}
