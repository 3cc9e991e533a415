{
global:
	dlsym;
#define HOOK(symbol, name, version, flags, parameters, arguments) symbol;
#include "hooks.def"
local:
	*;
};
