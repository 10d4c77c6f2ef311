#!/usr/bin/env bash
# Writes the generated code of the tree. `make verify` runs it and fails if a file
# has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

# Every package whose types appear on the wire: a version is served once it is
# here and declared in apis/.
packages=(
	k8s.io/api/admissionregistration/v1
	k8s.io/api/admissionregistration/v1alpha1
	k8s.io/api/admissionregistration/v1beta1
	k8s.io/api/apiserverinternal/v1alpha1
	k8s.io/api/apps/v1
	k8s.io/api/authentication/v1
	k8s.io/api/authentication/v1alpha1
	k8s.io/api/authentication/v1beta1
	k8s.io/api/authorization/v1
	k8s.io/api/authorization/v1beta1
	k8s.io/api/autoscaling/v1
	k8s.io/api/autoscaling/v2
	k8s.io/api/batch/v1
	k8s.io/api/batch/v1beta1
	k8s.io/api/certificates/v1
	k8s.io/api/certificates/v1alpha1
	k8s.io/api/certificates/v1beta1
	k8s.io/api/coordination/v1
	k8s.io/api/coordination/v1alpha2
	k8s.io/api/coordination/v1beta1
	k8s.io/api/core/v1
	k8s.io/api/discovery/v1
	k8s.io/api/discovery/v1beta1
	k8s.io/api/events/v1
	k8s.io/api/events/v1beta1
	k8s.io/api/extensions/v1beta1
	k8s.io/api/flowcontrol/v1
	k8s.io/api/flowcontrol/v1beta1
	k8s.io/api/flowcontrol/v1beta2
	k8s.io/api/flowcontrol/v1beta3
	k8s.io/api/lifecycle/v1alpha1
	k8s.io/api/networking/v1
	k8s.io/api/networking/v1beta1
	k8s.io/api/node/v1
	k8s.io/api/node/v1alpha1
	k8s.io/api/node/v1beta1
	k8s.io/api/policy/v1
	k8s.io/api/policy/v1beta1
	k8s.io/api/rbac/v1
	k8s.io/api/rbac/v1alpha1
	k8s.io/api/rbac/v1beta1
	k8s.io/api/resource/v1
	k8s.io/api/resource/v1alpha3
	k8s.io/api/resource/v1beta1
	k8s.io/api/resource/v1beta2
	k8s.io/api/scheduling/v1
	k8s.io/api/scheduling/v1alpha3
	k8s.io/api/scheduling/v1beta1
	k8s.io/api/storage/v1
	k8s.io/api/storage/v1alpha1
	k8s.io/api/storage/v1beta1
	k8s.io/api/storagemigration/v1
	k8s.io/api/storagemigration/v1beta1
	k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1
	k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1
	k8s.io/apimachinery/pkg/api/resource
	k8s.io/apimachinery/pkg/apis/meta/v1
	k8s.io/apimachinery/pkg/runtime
	k8s.io/apimachinery/pkg/util/intstr
	k8s.io/apimachinery/pkg/version
	k8s.io/kube-aggregator/pkg/apis/apiregistration/v1
	k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1
	k8s.io/metrics/pkg/apis/metrics/v1beta1
	svc.dev/svc/apis/removed/autoscaling/v2beta1
	svc.dev/svc/apis/removed/autoscaling/v2beta2
	svc.dev/svc/apis/removed/policy/v1beta1
)

go -C hack/tools build -o ../../bin/openapi-gen k8s.io/kube-openapi/cmd/openapi-gen

# The report lists violations of the API rules in Kubernetes' own types, which svc
# does not change.
bin/openapi-gen \
	--output-dir apis/openapi --output-pkg svc.dev/svc/apis/openapi \
	--output-file zz_generated.openapi.go --go-header-file /dev/null \
	--report-filename /dev/null \
	"${packages[@]}"

# Each call would build the map of all definitions, some 20 MB. As a map of
# functions, a caller builds only the definitions that it needs.
sed -i \
	-e 's/^func GetOpenAPIDefinitions(ref common.ReferenceCallback) map\[string\]common.OpenAPIDefinition {$/func makers() map[string]func(common.ReferenceCallback) common.OpenAPIDefinition {/' \
	-e 's/^\treturn map\[string\]common.OpenAPIDefinition{$/\treturn map[string]func(common.ReferenceCallback) common.OpenAPIDefinition{/' \
	-e '/OpenAPIModelName():/s/(ref),$/,/' \
	apis/openapi/zz_generated.openapi.go

# From here on with the build tag of the binaries, so that nothing is compiled twice.
GOFLAGS="$(go env GOFLAGS) -tags=fieldsv1string,grpcnotrace"
export GOFLAGS

# Hashes of the definitions.
go run ./hack/digests
gofmt -w apis/openapi/zz_generated.digests.go

# The machine code of the sandbox image's program, from svclet/image/pause/asm.
go run ./hack/pause

# docs/reference and config/rbac, from the declarations of controllers and settings.
go run ./hack/reference

# The table of the feature gates of each release of Kubernetes. It is generated again only if
# hack/gates has changed, and then from the sources of all releases.
go run ./hack/gates

# The table of what each release of Kubernetes serves. It is generated again only if
# hack/releases has changed, and then from some ninety modules.
go run ./hack/releases

# One object of each kind and version, for the specs and peers of releases.
go run ./hack/zoo

# The reference of the commands of svc and svclet, and of their flags.
hack/build.sh bin/svc
bin/svc reference > bin/reference.md
mv bin/reference.md docs/reference/svc.md
hack/build.sh bin/svclet
bin/svclet reference > bin/reference.md
mv bin/reference.md docs/reference/svclet-commands.md
