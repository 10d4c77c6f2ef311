// Package storageversion declares the kinds of the internal.apiserver.k8s.io group.
package storageversion

import (
	"fmt"
	"slices"
	"strings"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// Kinds returns the kinds of the internal.apiserver.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		storageVersions,
	}
}

// storageVersions tell in which version each API server encodes the objects of a resource
// (KEP-2339). svc stores them; its servers write none.
var storageVersions = resource.Type[*apiserverinternalv1alpha1.StorageVersion]{
	Name:           "storageversions",
	NameRule:       nameRule,
	RequireVersion: true,
	Status:         true,
	StatusOnly:     true,
	ValidateStatus: func(v, _ *apiserverinternalv1alpha1.StorageVersion) field.ErrorList {
		return validateStatus(&v.Status, field.NewPath("status"))
	},
	Columns: []resource.Column[*apiserverinternalv1alpha1.StorageVersion]{
		resource.Name[*apiserverinternalv1alpha1.StorageVersion](),
		{Name: "CommonEncodingVersion", Description: apiserverinternalv1alpha1.StorageVersionStatus{}.SwaggerDoc()["commonEncodingVersion"],
			Value: func(v *apiserverinternalv1alpha1.StorageVersion) any {
				if v.Status.CommonEncodingVersion == nil {
					return unset
				}
				return *v.Status.CommonEncodingVersion
			}},
		{Name: "StorageVersions", Description: apiserverinternalv1alpha1.StorageVersionStatus{}.SwaggerDoc()["storageVersions"],
			Value: func(v *apiserverinternalv1alpha1.StorageVersion) any { return serversCell(v.Status.StorageVersions) }},
		resource.Age[*apiserverinternalv1alpha1.StorageVersion](),
	},
}

// unset is the cell of a value that is missing.
const unset = "<unset>"

// shownServers is how many servers a table names.
const shownServers = 3

func serversCell(servers []apiserverinternalv1alpha1.ServerStorageVersion) string {
	if len(servers) == 0 {
		return unset
	}
	var names []string
	for _, s := range servers[:min(len(servers), shownServers)] {
		names = append(names, s.APIServerID+"="+s.EncodingVersion)
	}
	cell := strings.Join(names, ",")
	if more := len(servers) - shownServers; more > 0 {
		cell += fmt.Sprintf(" + %d more...", more)
	}
	return cell
}

// nameRule requires a name of the form <group>.<resource>.
func nameRule(name string, _ bool) []string {
	dot := strings.LastIndex(name, ".")
	if dot < 0 {
		return []string{"name must be in the form of <group>.<resource>"}
	}
	var errs []string
	for _, msg := range validation.IsDNS1123Subdomain(name[:dot]) {
		errs = append(errs, "the group segment "+msg)
	}
	for _, msg := range validation.IsDNS1035Label(name[dot+1:]) {
		errs = append(errs, "the resource segment "+msg)
	}
	return errs
}

func validateStatus(status *apiserverinternalv1alpha1.StorageVersionStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i := range status.StorageVersions {
		server, at := &status.StorageVersions[i], path.Child("storageVersions").Index(i)
		errs = append(errs, resource.Unique(at.Child("apiServerID"), server.APIServerID, seen)...)
		errs = append(errs, validateServer(server, at)...)
	}
	errs = append(errs, validateCommonVersion(status, path.Child("commonEncodingVersion"))...)
	return append(errs, validateConditions(status.Conditions, path.Child("conditions"))...)
}

// validateServer requires that a server can decode what it encodes and what it serves.
func validateServer(s *apiserverinternalv1alpha1.ServerStorageVersion, path *field.Path) field.ErrorList {
	errs := resource.Invalid(path.Child("apiServerID"), s.APIServerID, apivalidation.NameIsDNSSubdomain(s.APIServerID, false))
	errs = append(errs, validateAPIVersion(path.Child("encodingVersion"), s.EncodingVersion)...)
	decodable, served := path.Child("decodableVersions"), path.Child("servedVersions")
	for i, version := range s.DecodableVersions {
		errs = append(errs, validateAPIVersion(decodable.Index(i), version)...)
	}
	if !slices.Contains(s.DecodableVersions, s.EncodingVersion) {
		errs = append(errs, field.Invalid(decodable, s.DecodableVersions, "decodableVersions must include encodingVersion "+s.EncodingVersion))
	}
	for i, version := range s.ServedVersions {
		errs = append(errs, validateAPIVersion(served.Index(i), version)...)
		if !slices.Contains(s.DecodableVersions, version) {
			errs = append(errs, field.Invalid(served.Index(i), version,
				fmt.Sprintf("individual served version : %s must be included in decodableVersions : %s", version, s.DecodableVersions)))
		}
	}
	return errs
}

// validateAPIVersion requires a version with or without a group.
func validateAPIVersion(path *field.Path, apiVersion string) field.ErrorList {
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		version = apiVersion
	}
	var errs []string
	if grouped {
		for _, msg := range validation.IsDNS1123Subdomain(group) {
			errs = append(errs, "group part: "+msg)
		}
	}
	for _, msg := range validation.IsDNS1035Label(version) {
		errs = append(errs, "version part: "+msg)
	}
	if len(errs) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, apiVersion, strings.Join(errs, ","))}
}

// validateCommonVersion requires the version that all servers encode in, if it is one.
func validateCommonVersion(status *apiserverinternalv1alpha1.StorageVersionStatus, path *field.Path) field.ErrorList {
	common, stated := commonVersion(status.StorageVersions), status.CommonEncodingVersion
	switch {
	case common == "" && stated != nil:
		return field.ErrorList{field.Invalid(path, *stated,
			"should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet")}
	case common != "" && stated == nil:
		return field.ErrorList{field.Invalid(path, stated, "the common encoding version is "+common)}
	case common != "" && *stated != common:
		return field.ErrorList{field.Invalid(path, *stated, "the actual common encoding version is "+common)}
	}
	return nil
}

// commonVersion returns the version that all servers encode in, or "".
func commonVersion(servers []apiserverinternalv1alpha1.ServerStorageVersion) string {
	if len(servers) == 0 {
		return ""
	}
	for _, s := range servers[1:] {
		if s.EncodingVersion != servers[0].EncodingVersion {
			return ""
		}
	}
	return servers[0].EncodingVersion
}

// validateConditions allows types and states that are not known yet.
func validateConditions(conditions []apiserverinternalv1alpha1.StorageVersionCondition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	first := map[apiserverinternalv1alpha1.StorageVersionConditionType]int{}
	for i, c := range conditions {
		at := path.Index(i)
		if j, ok := first[c.Type]; ok {
			errs = append(errs, field.Invalid(at.Child("type"), string(c.Type), fmt.Sprintf("the type of the condition is not unique, it also appears in conditions[%d]", j)))
		} else {
			first[c.Type] = i
		}
		errs = append(errs, resource.Invalid(at.Child("type"), string(c.Type), validation.IsQualifiedName(string(c.Type)))...)
		errs = append(errs, resource.Invalid(at.Child("status"), string(c.Status), validation.IsQualifiedName(string(c.Status)))...)
		errs = append(errs, resource.Required(at.Child("reason"), c.Reason)...)
		errs = append(errs, resource.Required(at.Child("message"), c.Message)...)
	}
	return errs
}
