"""A headless Chromium that walks the console's pages."""

from __future__ import annotations

import shutil
from pathlib import Path

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

WAIT_S = 60
LOAD_MS = "return performance.getEntriesByType('navigation')[0].loadEventEnd"


class Browser:
    """A headless Chromium that resolves no name, so that it reaches this machine only."""

    def __init__(self, folder: Path) -> None:
        options = ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            f"--user-data-dir={folder}",
            "--window-size=1300,1000",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        options.accept_insecure_certs = True  # of a secured node's own authority
        self.driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))

    def open(self, address: str) -> None:
        self.driver.get(address)

    def measure_load(self, address: str) -> float:
        """Open a page; return how long Chromium took for it with its style and script, in s."""
        self.open(address)
        return float(self.driver.execute_script(LOAD_MS)) / 1000

    def wait(self, selector: str, text: str = "") -> None:
        """Wait until an element is there and has a text."""

        def has_text(driver: Chrome) -> bool:
            return any(
                text in each.text for each in driver.find_elements(By.CSS_SELECTOR, selector)
            )

        ignored = [StaleElementReferenceException]  # of the page before
        waiting = WebDriverWait(self.driver, WAIT_S, ignored_exceptions=ignored)
        waiting.until(has_text, f"{selector} with {text!r}")

    def click(self, text: str) -> None:
        self.driver.find_element(By.LINK_TEXT, text).click()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def fill(self, name: str, text: str) -> None:
        self.driver.find_element(By.NAME, name).send_keys(text)

    def choose(self, name: str, value: str) -> None:
        chosen = self.driver.find_element(By.CSS_SELECTOR, f"select[name='{name}']")
        Select(chosen).select_by_value(value)

    def submit(self, text: str) -> None:
        self.driver.find_element(By.XPATH, f"//main//button[text()='{text}']").click()

    @property
    def text(self) -> str:
        return str(self.driver.find_element(By.TAG_NAME, "main").text)

    def check_no_complaints(self) -> None:
        """Nothing that the page has was refused by its policy, and no script failed."""
        found = [
            line["message"]
            for line in self.driver.get_log("browser")
            if line["level"] == "SEVERE" and "favicon" not in line["message"]
        ]
        assert found == []
