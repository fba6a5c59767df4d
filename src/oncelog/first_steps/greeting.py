"""What a person is told once a server or a cluster that has secured itself is up: how to get in."""

from oncelog.first_steps.files import SecureFolder
from oncelog.server.secure import USER


def greeting(folder: SecureFolder, servers: str, users: int, *, who: str, first_command: str) -> str:
    """`who` lets them in; `users`: how many there are; `first_command` is one of oncelog's that shows something."""
    if folder.password() is None:
        return (
            f"The user {USER} may do everything, and nothing here has its password. If nobody knows it, stop {who}, "
            f"and start again after\n  {folder.remedy}"
        )
    them = f"the user {USER} alone" if users == 1 else f"{users} users"
    return (
        f"{who[0].upper()}{who[1:]} lets in {them} by password; that of {USER}, who may do everything, is in these "
        "files:\n"
        f"  {first_command} -F {folder.client_file}\n"
        f"  kafka-topics.sh --bootstrap-server {servers} --command-config {folder.java_file} --list\n"
        f"Clients on other machines need a copy of one of them, and of {folder.authority_file}."
    )
